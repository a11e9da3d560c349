"""Acceptance data: for every output position, how many drafts a step that starts there keeps.

Every source of acceptance (counterfactual lists, step records, fitted models) is brought into this
one form. A step at output position p that verifies K drafts accepts min(accepted[p], K), emits
one token more, and the next step starts there. So any policy can be replayed on the same luck.
Position 0 is that of a request's first step after its prompt, whose last pass emits a token too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.step import FloatArray, IntArray

DEEPEST = 254
"""The largest depth; 255 stands for "never" in `AcceptanceData.tree_sizes`."""


@dataclass(frozen=True, eq=False)
class LookedUp:
    """Drafts that a look-up in earlier text would have made at the same P output positions.

    Attributes:
        right: [P] uint8, leading drafts that are the output's next tokens.
        proposed: [P] uint8, drafts; None where not known.
        match: [P] uint8, tokens before the position that agree with where the drafts were found; 0
            where nothing was. None where not known.
    """

    right: NDArray[np.uint8]
    proposed: NDArray[np.uint8] | None = None
    match: NDArray[np.uint8] | None = None

    def at(self, positions: IntArray) -> LookedUp:
        """Return the look-ups of these positions."""
        return LookedUp(
            self.right[positions],
            None if self.proposed is None else self.proposed[positions],
            None if self.match is None else self.match[positions],
        )

    @classmethod
    def joined(cls, parts: Sequence[LookedUp]) -> LookedUp:
        """All parts end to end; proposals and matches where all parts have them."""
        proposed = [part.proposed for part in parts if part.proposed is not None]
        match = [part.match for part in parts if part.match is not None]
        return cls(
            np.concatenate([part.right for part in parts]),
            np.concatenate(proposed) if len(proposed) == len(parts) else None,
            np.concatenate(match) if len(match) == len(parts) else None,
        )


@dataclass(frozen=True, eq=False)
class AcceptanceData:
    """Records of requests, laid end to end. R records, P positions in all.

    Attributes:
        name: for people.
        source: where it comes from, and how it was made.
        accepted: [P] uint8, drafts accepted by a step that starts at this position, were at
            least `depth` verified; 0..depth.
        offsets: [R + 1] record r owns positions offsets[r]..offsets[r + 1] - 1; no record is empty.
        prompt_tokens: [R] length of the record's prompt; 0 where unknown.
        labels: [R] task label, "" where there is none.
        depth: the deepest draft position that is known; K of a chain must not exceed it.
        proposed: [P] uint8, drafts the drafter can propose here (n-gram: none where nothing
            matches), or None: as many as asked for.
        tree_sizes: [P, levels] uint8 for token trees: the smallest number of verified nodes with
            which the token at that depth is accepted, ascending along a row, 255 for never; a
            step that verifies K nodes accepts the number of entries <= K. None for chains,
            where `accepted` says it all.
        confidence: [P, depth] float32, maximum probability of the draft distribution at each
            draft position of a step that starts here, nan where unknown; None without a signal.
        temperature: sampling temperature of the target the records were made with; the highest one.
        drafter_list: list of a per-position file that the data were read from, such as ``ngram``;
            "" for other sources.
        record_temperature: [R] that of each record, where they differ; None: `temperature`.
        lookup: a second source of drafts; None: there is none.
    """

    name: str
    source: str
    accepted: NDArray[np.uint8]
    offsets: IntArray
    prompt_tokens: IntArray
    labels: tuple[str, ...]
    depth: int
    proposed: NDArray[np.uint8] | None = None
    tree_sizes: NDArray[np.uint8] | None = None
    confidence: NDArray[np.float32] | None = None
    temperature: float = 0.0
    record_temperature: FloatArray | None = None
    drafter_list: str = ""
    lookup: LookedUp | None = None

    def __post_init__(self) -> None:
        records = len(self.offsets) - 1
        if records < 1 or len(self.prompt_tokens) != records or len(self.labels) != records:
            raise ValueError("offsets, prompt_tokens and labels must describe the same records")
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.accepted):
            raise ValueError("offsets must start at 0 and end at the number of positions")
        if (np.diff(self.offsets) < 1).any():
            raise ValueError("a record without positions")
        if not 1 <= self.depth <= DEEPEST:
            raise ValueError(f"depth must be 1..{DEEPEST}, got {self.depth}")
        if int(self.accepted.max()) > self.depth:
            raise ValueError(f"accepted leaves 0..{self.depth}")
        positions = len(self.accepted)
        looked_up = None if self.lookup is None else self.lookup.right
        by_position = {
            "proposed": self.proposed,
            "lookup": looked_up,
            "tree_sizes": self.tree_sizes,
        }
        for name, array in by_position.items():
            if array is not None and len(array) != positions:
                raise ValueError(f"{name} must have one entry per position")
        if self.confidence is not None and self.confidence.shape != (positions, self.depth):
            raise ValueError(f"confidence must be [{positions}, {self.depth}]")
        if self.record_temperature is not None and len(self.record_temperature) != records:
            raise ValueError("record_temperature must have one entry per record")

    @property
    def records(self) -> int:
        """R."""
        return len(self.labels)

    @property
    def temperatures(self) -> FloatArray:
        """[R] sampling temperature of the target."""
        if self.record_temperature is None:
            return np.full(self.records, self.temperature)
        return self.record_temperature

    @property
    def lengths(self) -> IntArray:
        """[R] output tokens of each record."""
        lengths: IntArray = np.diff(self.offsets)
        return lengths


def steps_of(data: AcceptanceData, k: int | IntArray) -> tuple[IntArray, IntArray]:
    """Replay every record with a fixed K, or with the K of the position where a step begins.

    Returns ([S] first position of each step, [S] drafts it accepts, 0..k), records in order.
    A step at the end of a record counts what it accepts, though fewer tokens may be left to emit.
    Raises ValueError for a K the data does not know.
    """
    if np.min(k) < 0 or np.max(k) > data.depth:
        raise ValueError(f"K = {k} leaves 0..{data.depth}, what {data.name} knows")
    accepted = np.minimum(data.accepted, k).astype(np.int64)
    emitted = (accepted + 1).tolist()
    starts: list[int] = []
    for position, end in itertools.pairwise(data.offsets.tolist()):
        while position < end:
            starts.append(position)
            position += emitted[position]
    first: IntArray = np.array(starts, dtype=np.int64)
    return first, accepted[first]


def mean_accepted(data: AcceptanceData, k: int) -> float:
    """Drafts accepted per step of a replay with a fixed K (bonus token not counted)."""
    return float(steps_of(data, k)[1].mean())


def hazards(accepted: IntArray, depth: int) -> tuple[FloatArray, IntArray]:
    """Hazard of each draft position among steps that verified at least `depth` drafts.

    Args:
        accepted: [S] drafts accepted.
        depth: number of positions.

    Returns ([depth] hazard, 0 where never reached; [depth] steps that reached the position).
    """
    reached = np.array([np.count_nonzero(accepted >= j) for j in range(depth + 1)], dtype=np.int64)
    return reached[1:] / np.maximum(reached[:-1], 1), reached[:-1]
