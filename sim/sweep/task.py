"""One unit of a sweep's work: a policy, or the oracles, on one cell. Runs in any process."""

from __future__ import annotations

import math

import msgspec

from adaptive_spec.sim.oracle import Oracles, consult
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.results.result import Result, Timeline
from adaptive_spec.sim.scenario import Scenario, simulate
from adaptive_spec.sim.sweep.cells import CellName


class _OfCell(msgspec.Struct, frozen=True):
    """A cell and a policy; `policy` is None for the oracles."""

    cell: CellName
    policy: str | None

    @property
    def key(self) -> RunKey:
        """Identifies it within the sweep."""
        return self.cell, self.policy

    @property
    def text(self) -> str:
        """Name in messages."""
        return f"{self.cell.text} / {self.policy or 'oracles'}"


class Task(_OfCell, frozen=True):
    """One run of a sweep.

    Attributes:
        cell: where its result belongs.
        policy: its name in results; None: the oracles.
        choice: the policy as the configuration writes it; empty for the oracles.
        scenario: what to simulate.
        timeline_pieces: points of the timeline to keep.
        foresight: the oracles include it.
    """

    choice: str
    scenario: Scenario
    timeline_pieces: int
    foresight: bool = True

    def execute(self) -> Outcome:
        """Return the outcome. What fails is told in it, so that others go on."""
        try:
            if self.policy is None:
                oracles = consult(self.scenario, foresight=self.foresight)
                oracles = _thinned(oracles, self.timeline_pieces)
                return Outcome(cell=self.cell, oracles=oracles)
            result = simulate(self.scenario, parse_policy(self.choice))
            result = msgspec.structs.replace(result, policy=self.policy)
            result = with_timeline(result, self.timeline_pieces)
            return Outcome(cell=self.cell, policy=self.policy, result=result)
        except Exception as error:
            return self.failed(_one_line(error))

    def failed(self, error: str) -> Outcome:
        """Return the outcome of a task that came to nothing."""
        return Outcome(cell=self.cell, policy=self.policy, error=error)


RunKey = tuple[CellName, str | None]


class Outcome(_OfCell, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of a task: a result, oracles, or one line that says what went wrong."""

    policy: str | None = None
    result: Result | None = None
    oracles: Oracles | None = None
    error: str | None = None


def with_timeline(result: Result, pieces: int) -> Result:
    """The result with at most so many points of its timeline, each a mean over neighbours."""
    return msgspec.structs.replace(result, timeline=_thin(result.timeline, pieces))


def _thinned(oracles: Oracles, pieces: int) -> Oracles:
    """Timelines of the best fixed K and of foresight only: others are not looked at."""
    best = oracles.best_static_k
    static = tuple(
        with_timeline(result, pieces if k == best else 0) for k, result in enumerate(oracles.static)
    )
    foresight = oracles.foresight
    return msgspec.structs.replace(
        oracles,
        static=static,
        foresight=None if foresight is None else with_timeline(foresight, pieces),
    )


def _thin(timeline: Timeline, pieces: int) -> Timeline:
    length = len(timeline.now)
    if not pieces or not length:
        return Timeline()
    group = math.ceil(length / pieces)
    starts = range(0, length, group)

    def means(values: list[float]) -> list[float]:
        parts = (values[start : start + group] for start in starts)
        return [round(sum(part) / len(part), 6) for part in parts]

    return Timeline(
        now=[timeline.now[min(start + group, length) - 1] for start in starts],
        batch_size=means(timeline.batch_size),
        k=means(timeline.k),
        tokens_per_second=means(timeline.tokens_per_second),
        off=means(timeline.off),
    )


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
