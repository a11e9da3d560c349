"""Acceptance data made for tests."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData, steps_of
from adaptive_spec.sim.acceptance.imputation import RecordedSteps


def data_of(*records: Sequence[int], depth: int = 8, name: str = "made up") -> AcceptanceData:
    return AcceptanceData(
        name=name,
        source="a test",
        accepted=np.concatenate([np.array(record, dtype=np.uint8) for record in records]),
        offsets=np.concatenate([[0], np.cumsum([len(record) for record in records])]),
        prompt_tokens=np.zeros(len(records), dtype=np.int64),
        labels=("",) * len(records),
        depth=depth,
    )


def emitted_by_record(data: AcceptanceData, k: int) -> list[int]:
    """Tokens a replay with a fixed K emits for each record, the last step cut at its end."""
    starts, accepted = steps_of(data, k)
    record = np.searchsorted(data.offsets, starts, side="right") - 1
    emitted = np.minimum(accepted + 1, data.offsets[record + 1] - starts)
    return np.bincount(record, weights=emitted, minlength=data.records).astype(int).tolist()


def recorded_at(data: AcceptanceData, k: int) -> RecordedSteps:
    """What a run with a fixed K would have recorded."""
    starts, accepted = steps_of(data, k)
    record = np.searchsorted(data.offsets, starts, side="right") - 1
    return RecordedSteps(
        verified=np.full(len(starts), k),
        accepted=accepted,
        emitted=np.minimum(accepted + 1, data.offsets[record + 1] - starts),
        offsets=np.concatenate([[0], np.cumsum(np.bincount(record, minlength=data.records))]),
    )


def recorded_with(data: AcceptanceData, choose: Callable[[int, int], int]) -> RecordedSteps:
    """Return what a run records, K chosen by position and number of the step; with confidence."""
    rows: list[tuple[int, int, int, int]] = []
    owned = [0]
    for first, end in itertools.pairwise(data.offsets.tolist()):
        place = first
        while place < end:
            k = choose(place, len(rows))
            accepted = min(int(data.accepted[place]), k)
            rows.append((place, k, accepted, min(accepted + 1, end - place)))
            place += accepted + 1
        owned.append(len(rows))
    places, verified, accepted, emitted = np.array(rows).T
    shown = None if data.confidence is None else data.confidence[places]
    return RecordedSteps(verified, accepted, emitted, np.array(owned), shown)


class Correlation(NamedTuple):
    """Share of steps that accept all, and the same after a step that accepted all or none."""

    all_accepted: float
    after_all: float
    after_none: float


def step_correlation(data: AcceptanceData, k: int) -> Correlation:
    """How one step's acceptance depends on the step before it, at a fixed K."""
    starts, accepted = steps_of(data, k)
    record = np.searchsorted(data.offsets, starts, side="right")
    follows = record[1:] == record[:-1]
    before, now = accepted[:-1][follows], accepted[1:][follows] == k
    return Correlation(
        float((accepted == k).mean()),
        float(now[before == k].mean()),
        float(now[before == 0].mean()),
    )


def shown_at(data: AcceptanceData, position: int):
    """Confidence at a position of the steps that reach it, and whether the draft was accepted."""
    column = data.confidence[:, position].astype(np.float64)
    counted = (data.accepted >= position) & ~np.isnan(column)
    return column[counted], (data.accepted[counted] > position).astype(np.float64)
