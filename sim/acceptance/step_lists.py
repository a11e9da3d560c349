"""Step lists: accepted length of each step of a run, as Spec-Bench writes them.

Rows of JSON lines with ``category``, ``new_tokens[turn]``, ``steps[turn]`` and
``accept_lengths[turn][step]`` (bonus token included). Each turn becomes one record, imputed at
every position (`adaptive_spec.sim.acceptance.imputation`). How many drafts each step verified
isn't in the file. It is taken to follow the draft-length rule of Hugging Face's assisted generation
(`heuristic_draft_lengths`) where that explains every step and one K up to its start does not;
otherwise the largest accepted number stands in for K, which understates runs where the drafter
stopped earlier by itself. The data's `source` says which.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import DEEPEST, AcceptanceData
from adaptive_spec.sim.acceptance.imputation import RecordedSteps
from adaptive_spec.sim.acceptance.recorded import imputed_data
from adaptive_spec.sim.text_rows import read_rows
from adaptive_spec.step import IntArray

HEURISTIC_START = 5
"""Draft tokens of the first step under the Hugging Face heuristic."""

_MOST_TOKENS = 1 << 17
"""Of a turn without speculation, which becomes as many steps."""
_Length = Annotated[int, msgspec.Meta(ge=1, le=DEEPEST + 1)]
_Turn = Annotated[list[_Length], msgspec.Meta(min_length=1)]
_Turns = Annotated[list[_Turn], msgspec.Meta(min_length=1)]
_Counts = list[Annotated[int, msgspec.Meta(ge=1, le=_MOST_TOKENS)]]


class _Row(msgspec.Struct):
    category: str = ""
    new_tokens: _Counts = []
    steps: _Counts = []
    accept_lengths: _Turns | None = None


def read_step_lists(
    path: str | os.PathLike[str],
    *,
    depth: int | None = None,
    seed: int = 0,
) -> AcceptanceData:
    """Read step lists and impute acceptance at every position.

    Args:
        path: JSON lines, plain or gzip. Rows without ``accept_lengths`` are runs in which every
            step emitted one token; ``steps`` must say as much as ``new_tokens`` then.
        depth: drafts known at each position; None: the largest K.
        seed: of the draws that continue runs past K.

    Raises DataError naming file, row and what is wrong.
    """
    file = Path(path)
    turns: list[IntArray] = []
    labels: list[str] = []
    with_lengths = False
    for number, row in read_rows(file):
        lengths, category = _turns(file, number, row)
        with_lengths = with_lengths or "accept_lengths" in row
        for turn in lengths:
            turns.append(np.array(turn, dtype=np.int64) - 1)
            labels.append(category)
    if not with_lengths:
        raise DataError(
            f"{file}: no row has accept_lengths: this is a run without speculation; give one with"
        )
    verified, how = _draft_lengths(turns)
    steps = RecordedSteps(
        verified=np.concatenate(verified),
        accepted=np.concatenate(turns),
        emitted=np.concatenate(turns) + 1,
        offsets=np.concatenate([[0], np.cumsum([len(x) for x in turns])]).astype(np.int64),
    )
    data = imputed_data(steps, file, f"step lists, {how}", depth=depth, seed=seed)
    return replace(data, labels=tuple(labels))


def heuristic_draft_lengths(accepted: IntArray) -> IntArray:
    """[steps] K under Hugging Face's heuristic: 5 at first, +2 after all accepted, else -1.

    It never falls below 1. Source: ``num_assistant_tokens_schedule="heuristic"`` of
    transformers. Raises ValueError with the step (from 1) that accepts more than its K.
    """
    draft_lengths = []
    draft_length = HEURISTIC_START
    for step, kept in enumerate(accepted.tolist(), start=1):
        if kept > draft_length:
            raise ValueError(
                f"step {step} accepts {kept} drafts, the heuristic drafted {draft_length}"
            )
        draft_lengths.append(draft_length)
        draft_length = draft_length + 2 if kept == draft_length else max(1, draft_length - 1)
    return np.array(draft_lengths, dtype=np.int64)


def _turns(file: Path, number: int, row: dict[str, Any]) -> tuple[list[list[int]], str]:
    """Accepted lengths of each turn of a row, and its label."""
    try:
        checked = msgspec.convert(row, _Row)
    except msgspec.ValidationError as error:
        raise DataError(f"{file}: row {number}: {error}") from error
    if checked.accept_lengths is not None:
        return checked.accept_lengths, checked.category
    if not checked.new_tokens or checked.steps != checked.new_tokens:
        raise DataError(f"{file}: row {number}: no accept_lengths")
    return [[1] * tokens for tokens in checked.new_tokens], checked.category


def _draft_lengths(turns: list[IntArray]) -> tuple[list[IntArray], str]:
    """K of each step by turn, and how it is known."""
    largest = max(int(turn.max()) for turn in turns)
    if largest > HEURISTIC_START:
        try:
            return [heuristic_draft_lengths(turn) for turn in turns], "K by the HF heuristic"
        except ValueError:
            pass
    inferred = max(largest, 1)
    how = f"K is not in the file, taken as the largest accepted number, {inferred}"
    return [np.full(len(turn), inferred) for turn in turns], how
