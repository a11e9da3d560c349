"""Putting acceptance data together and taking it apart, by whole records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.acceptance.data import AcceptanceData, LookedUp
from adaptive_spec.step import FloatArray, IntArray

_ANY_NUMBER = 255
"""`proposed` of a drafter that drafts as many as asked for."""


def select(data: AcceptanceData, records: IntArray) -> AcceptanceData:
    """The records with these numbers, in this order; a record may come twice.

    Raises ValueError if none is named, IndexError for one that is not there.
    """
    if not len(records):
        raise ValueError("no records named")
    lengths = data.lengths[records]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.repeat(data.offsets[records] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return replace(
        data,
        accepted=data.accepted[positions],
        offsets=offsets,
        prompt_tokens=data.prompt_tokens[records],
        labels=tuple(data.labels[record] for record in records.tolist()),
        proposed=None if data.proposed is None else data.proposed[positions],
        tree_sizes=None if data.tree_sizes is None else data.tree_sizes[positions],
        confidence=None if data.confidence is None else data.confidence[positions],
        record_temperature=(
            None if data.record_temperature is None else data.record_temperature[records]
        ),
        lookup=None if data.lookup is None else data.lookup.at(positions),
    )


def pool(parts: Sequence[AcceptanceData], *, seed: int) -> AcceptanceData:
    """One set of all records, interleaved in an order drawn by the seed.

    A single part is returned as it is. Parts are cut to the smallest depth among them. Where only
    some have a confidence the others' is unknown (nan); where only some say how many drafts
    can be proposed the others can propose any number. Each record keeps its temperature.

    Raises ValueError without parts, or if token trees meet chains or trees of other depths.
    """
    if not parts:
        raise ValueError("nothing to pool")
    if len(parts) == 1:
        return parts[0]
    depth = min(part.depth for part in parts)
    lists = {part.drafter_list for part in parts}
    joined = AcceptanceData(
        name="+".join(dict.fromkeys(part.name for part in parts)),
        source="; ".join(dict.fromkeys(part.source for part in parts)),
        accepted=np.minimum(np.concatenate([part.accepted for part in parts]), depth).astype(
            np.uint8
        ),
        offsets=np.concatenate(
            [[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]
        ).astype(np.int64),
        prompt_tokens=np.concatenate([part.prompt_tokens for part in parts]),
        labels=tuple(label for part in parts for label in part.labels),
        depth=depth,
        proposed=_filled(
            parts,
            [part.proposed for part in parts],
            lambda count: np.full(count, _ANY_NUMBER, dtype=np.uint8),
        ),
        tree_sizes=_tree_sizes(parts),
        drafter_list=lists.pop() if len(lists) == 1 else "",
        confidence=_filled(
            parts,
            [None if part.confidence is None else part.confidence[:, :depth] for part in parts],
            lambda count: np.full((count, depth), np.nan, dtype=np.float32),
        ),
        temperature=max(part.temperature for part in parts),
        record_temperature=_record_temperature(parts),
        lookup=_lookup(parts),
    )
    return select(joined, np.random.default_rng(seed).permutation(joined.records))


def _filled(
    parts: Sequence[AcceptanceData],
    arrays: Sequence[NDArray[Any] | None],
    nothing: Callable[[int], NDArray[Any]],
) -> NDArray[Any] | None:
    """Arrays of all parts, `nothing` of so many positions where a part has none; None if all."""
    if all(array is None for array in arrays):
        return None
    filled: NDArray[Any] = np.concatenate(
        [
            nothing(len(part.accepted)) if array is None else array
            for part, array in zip(parts, arrays, strict=True)
        ]
    )
    return filled


def _record_temperature(parts: Sequence[AcceptanceData]) -> FloatArray | None:
    temperatures: FloatArray = np.concatenate([part.temperatures for part in parts])
    return None if (temperatures == temperatures[0]).all() else temperatures


def _lookup(parts: Sequence[AcceptanceData]) -> LookedUp | None:
    """Look-ups of all parts; where a part has none, nothing is found."""
    if all(part.lookup is None for part in parts):
        return None
    nothing = [np.zeros(len(part.accepted), dtype=np.uint8) for part in parts]
    return LookedUp.joined(
        [
            part.lookup or LookedUp(none, none, none)
            for part, none in zip(parts, nothing, strict=True)
        ]
    )


def _tree_sizes(parts: Sequence[AcceptanceData]) -> NDArray[np.uint8] | None:
    trees = [part.tree_sizes for part in parts if part.tree_sizes is not None]
    if not trees:
        return None
    if len(trees) < len(parts) or len({tree.shape[1] for tree in trees}) > 1:
        raise ValueError("token trees can only be pooled with token trees of the same depth")
    return np.concatenate(trees)
