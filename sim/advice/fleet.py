"""The replicas of a fleet by pool, from the summaries that `trace compact` has written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.errors import DataError
from adaptive_spec.operation.segments import Segment
from adaptive_spec.sim.advice.advice import Predicted, predict
from adaptive_spec.sim.advice.summary import SUFFIX, Summary, load, together
from adaptive_spec.sim.hardware.from_trace import FEWEST_STEPS, by_speed, joined
from adaptive_spec.sim.step_trace import RecordedTrace

LEAST_ACCEPTED = 0.8
"""Acceptance of a replica, over that of its pool, below which it is named."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Replicas with one model and the same Kmax, whose steps take as long.

    Attributes:
        summary: of all of them.
        files: that it was read from.
        remarks: replicas that stand out, a sentence each.
    """

    summary: Summary
    files: RecordedTrace
    remarks: list[str]


class PoolPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """Task: predict for one pool or server; its outcome has `predicted`, or an error.

    Attributes:
        number: of the pool.
        source, options: arguments of `predict`.
        error: one line; "": all is well.
    """

    number: int
    source: RecordedTrace | Summary | None = None
    options: dict[str, Any] = {}
    predicted: Predicted | None = None
    error: str = ""

    def execute(self) -> PoolPrediction:
        """Simulate all set-ups."""
        assert self.source is not None
        try:
            return PoolPrediction(
                number=self.number, predicted=predict(self.source, **self.options)
            )
        except Exception as error:  # the other pools go on
            return self.failed(" ".join(str(error).split()) or type(error).__name__)

    def failed(self, error: str) -> PoolPrediction:
        """Return the outcome of a task that came to nothing."""
        return PoolPrediction(number=self.number, error=error)


def find_summaries(places: Iterable[Path]) -> list[Path]:
    """Return the summaries in folders, and in their folders, in order."""
    return sorted(file for place in places if place.is_dir() for file in place.rglob(f"*{SUFFIX}"))


def read_pools(files: Sequence[Path], *, seed: int = 0) -> list[Pool]:
    """Return the pools of a fleet. Raises DataError for a file that is no summary.

    Replicas that have served too little to tell their speed go with the largest pool of their
    model.
    """
    replicas: dict[tuple[str, int], list[tuple[Path, Summary]]] = defaultdict(list)
    for file in files:
        summary = load(file)
        replicas[summary.sums.model, summary.sums.kmax].append((file, summary))
    return [
        _pool(members, model, pace, len(groups), seed)
        for (model, _), same in sorted(replicas.items())
        for groups in [_groups(same)]
        for pace, members in groups
    ]


def _groups(
    replicas: list[tuple[Path, Summary]],
) -> list[tuple[float, list[tuple[Path, Summary]]]]:
    """Return replicas of one model by the pace of their steps, the largest group first."""
    steps = joined([summary.steps for _, summary in replicas])
    paces = by_speed(steps) if len(steps.seconds) >= FEWEST_STEPS else []
    if not paces:
        return [(1.0, replicas)]
    paces.sort(key=lambda each: -len(each[1]))
    usual, _ = paces[0]
    known = {name for _, names in paces for name in names}
    found = []
    for number, (pace, names) in enumerate(paces):
        own = [r for r in replicas if r[1].name in names or (not number and r[1].name not in known)]
        found.append((pace / usual, own))
    return found


def _pool(
    members: list[tuple[Path, Summary]], model: str, pace: float, groups: int, seed: int
) -> Pool:
    name = f"{model or 'model unnamed'}, {len(members)} replica{'s' * (len(members) > 1)}"
    if groups > 1:
        name += f", steps x {pace:.2f}"
    whole = together([summary for _, summary in members], seed=seed)
    files = tuple(Segment(file, file.stat().st_size) for file, _ in members)
    return Pool(whole, RecordedTrace(name, files), _remarks(members, whole, pace, groups))


def _remarks(
    members: list[tuple[Path, Summary]], whole: Summary, pace: float, groups: int
) -> list[str]:
    found = []
    if groups > 1 and pace != 1.0:
        names = ", ".join(summary.name for _, summary in members)
        found.append(f"{names}: steps take {pace:.2f} of the time of the other replicas")
    usual = _accepted(whole)
    for _, summary in members:
        own = _accepted(summary)
        if own is not None and usual and own < LEAST_ACCEPTED * usual:
            found.append(f"{summary.name}: {own:.0%} of its drafts accepted, {usual:.0%} of all")
    return found


def _accepted(summary: Summary) -> float | None:
    band = summary.sums.whole
    return band.accepted / band.verified if band.verified else None


def require_no_traces(places: Sequence[Path], files: Sequence[Path]) -> None:
    """Raise DataError for places without a summary beside others with some."""
    for place in places:
        if not any(place in file.parents for file in files):
            raise DataError(f"{place}: no summary in it; traces and summaries are read apart")
