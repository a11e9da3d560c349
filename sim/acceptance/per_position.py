"""Counterfactual lists: the accepted length at every output position, one request per row.

The form in which SpecDecode-Bench (arXiv 2601.11580) publishes acceptance: each row has one or
more lists, such as ``eagle`` and ``ngram``; entry p is the number of tokens that a step starting at
output position p would emit with very many drafts, the bonus token included. Replaying it needs no
assumption: with K drafts a step emits min(entry, K + 1), and the next starts there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import DEEPEST, AcceptanceData, LookedUp
from adaptive_spec.sim.text_rows import read_rows

_Lengths = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)]


def read_per_position(
    path: str | os.PathLike[str], drafter_list: str, *, depth: int | None = None
) -> AcceptanceData:
    """Read one list of a file of per-position accepted lengths.

    The length of the list is the record's output length: the lists of a row can come from
    separate runs, so ``gen_len`` need not agree with it.

    Args:
        path: JSON lines, plain or gzip: the list, and optionally ``dataset`` (task label) and
            ``prompt_len`` (tokens).
        drafter_list: name of the list; ``eagle+ngram``: that of a drafter, and that of a look-up
            for the same text. ``ngram_proposed`` and ``ngram_match``, if they are there, hold the
            drafts that were found and the length of the match. Rows whose lists are of different
            lengths, which are of different texts, are left out.
        depth: drafts known at each position; longer runs are cut to it. None: the longest run.
            Below the longest run every rejection is known, so a depth beyond it is sound unless
            the file itself was cut there.

    Raises DataError naming file, row and what is wrong; for an unknown list the lists there are.
    """
    file = Path(path)
    accepted: list[NDArray[np.int64]] = []
    prompts: list[int] = []
    labels: list[str] = []
    drafter, _, lookup = drafter_list.partition("+")
    copied: list[LookedUp] = []
    for number, row in read_rows(file):
        own = _lengths(file, number, row, drafter) - 1
        if lookup:
            found = _looked_up(file, number, row, lookup)
            if len(found.right) != len(own):
                continue
            copied.append(found)
        accepted.append(own)
        prompts.append(_prompt_tokens(file, number, row.get("prompt_len", 0)))
        label = row.get("dataset", "")
        labels.append(label if isinstance(label, str) else str(label))
    if not accepted:
        raise DataError(f"{file}: no row whose lists {drafter_list!r} are of one length")
    flat = np.concatenate(accepted)
    longest = int(flat.max())
    depth = min(max(longest, 1), DEEPEST) if depth is None else depth
    return AcceptanceData(
        name=file.name.split(".")[0],
        source=f"{file.name}, list {drafter_list!r}: counterfactual accepted lengths at every "
        f"position; the longest run accepts {longest} drafts",
        accepted=np.minimum(flat, depth).astype(np.uint8),
        offsets=np.concatenate([[0], np.cumsum([len(x) for x in accepted])]).astype(np.int64),
        prompt_tokens=np.array(prompts, dtype=np.int64),
        labels=tuple(labels),
        depth=depth,
        drafter_list=drafter_list,
        lookup=LookedUp.joined(copied) if lookup else None,
    )


def _looked_up(file: Path, number: int, row: dict[str, Any], name: str) -> LookedUp:
    """A row's lists of a second source of drafts."""
    proposed, match = f"{name}_proposed", f"{name}_match"

    def list_of(name: str, bonus: int) -> NDArray[np.uint8]:
        lengths = _lengths(file, number, row, name, least=bonus)
        return np.minimum(lengths - bonus, DEEPEST).astype(np.uint8)

    return LookedUp(
        list_of(name, 1),
        list_of(proposed, 0) if proposed in row else None,
        list_of(match, 0) if match in row else None,
    )


def lists_of(row: dict[str, Any]) -> list[str]:
    """Names of the fields that hold a list of whole numbers, not empty."""
    return [
        name
        for name, value in row.items()
        if isinstance(value, list) and value and all(type(entry) is int for entry in value)
    ]


def _lengths(
    file: Path, number: int, row: dict[str, Any], name: str, *, least: int = 1
) -> NDArray[np.int64]:
    if name not in row:
        there = ", ".join(lists_of(row)) or "none"
        raise DataError(f"{file}: row {number}: no list {name!r}; lists there are: {there}")
    try:
        lengths = np.array(msgspec.convert(row[name], _Lengths), dtype=np.int64)
        if (low := int(lengths.min())) < least:
            raise OverflowError(f"{low} is below {least}")
        return lengths
    except (msgspec.ValidationError, OverflowError) as error:
        raise DataError(
            f"{file}: row {number}: list {name!r}: {error}; expected accepted lengths with the "
            "bonus token, 1 or more"
        ) from error


def _prompt_tokens(file: Path, number: int, value: object) -> int:
    if type(value) is not int or value < 0:
        raise DataError(
            f"{file}: row {number}: prompt_len is {value!r}, expected a number of tokens"
        )
    return value
