"""Steps that were planned and whose results have not arrived yet.

Engines that schedule ahead report a step one or two steps late, without the requests that have
ended meanwhile; a step in which nothing decodes may never be reported. This is the one place that
remembers steps by number: everybody else gets a `FinishedStep`, whose arrays have been brought to
the rows of its outcome.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from adaptive_spec.step import (
    BoolArray,
    FinishedStep,
    IntArray,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_MOST_IN_FLIGHT = 64
"""Far more than any engine schedules ahead: steps that are never reported must not add up."""

_CONTEXT_ROWS = (
    "slots",
    "context_tokens",
    "draft_available",
    "draft_possible",
    "tpot_target",
    "task",
    "temperature",
    "confidence",
    "entropy",
    "kv_draft_limit",
)
_PLAN_ROWS = ("verify", "propensity")
_OUTCOME_ROWS = ("slots", "verified", "accepted", "emitted", "confidence", "entropy")

_Rows = TypeVar("_Rows", StepContext, SpecPlan, StepOutcome)


class StepInFlight(NamedTuple):
    """A planned step.

    Attributes:
        context: as the engine gave it.
        plan: what the engine was told to run.
        seen: the context as the policy saw it, which is `context` but for the memory guard.
        wanted: the policy's own plan, which is `plan` but in shadow mode; where the policy made
            none, `plan`.
    """

    context: StepContext
    plan: SpecPlan
    seen: StepContext
    wanted: SpecPlan


class StepsInFlight:
    """The planned steps by number; bounded."""

    def __init__(self) -> None:
        self._steps: dict[int, StepInFlight] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: StepInFlight) -> None:
        """Keep a step until `take`; the oldest falls out where there are too many."""
        self._steps[step.context.step] = step
        if len(self._steps) > _MOST_IN_FLIGHT:
            del self._steps[next(iter(self._steps))]

    def take(self, number: int) -> StepInFlight | None:
        """The step of this number, once; None without it. Older ones have no results any more."""
        for older in [step for step in self._steps if step < number]:
            del self._steps[older]
        return self._steps.pop(number, None)

    def change_policy(self) -> None:
        """Another policy observes from now on: it must not get the notes of the one before."""
        for number, step in self._steps.items():
            wanted = msgspec.structs.replace(step.wanted, notes=(), memo=None)
            self._steps[number] = step._replace(wanted=wanted)


def finished_step(context: StepContext, plan: SpecPlan, outcome: StepOutcome) -> FinishedStep:
    """The three values of a step with the same rows: those of `outcome` that `context` knows.

    Nothing is copied where all requests are still alive.
    """
    planned, alive = context.slots, outcome.slots
    if len(planned) == len(alive) and (planned == alive).all():
        return FinishedStep(context, plan, outcome)
    place, known = _places(alive, planned)
    if not known.all():
        outcome = _taken(outcome, _OUTCOME_ROWS, np.flatnonzero(known))
        place = place[known]
    ids = context.request_ids
    return FinishedStep(
        _taken(context, _CONTEXT_ROWS, place, request_ids=[ids[row] for row in place.tolist()]),
        _taken(plan, _PLAN_ROWS, place, notes=tuple(note[place] for note in plan.notes)),
        outcome,
    )


def _places(slots: IntArray, among: IntArray) -> tuple[IntArray, BoolArray]:
    """[B] where each slot is in `among`; [B] whether it is there at all."""
    if not len(among):
        return np.zeros(len(slots), dtype=np.int64), np.zeros(len(slots), dtype=np.bool_)
    order = np.argsort(among)
    found = np.searchsorted(among, slots, sorter=order)
    place = order[np.minimum(found, len(order) - 1)]
    return place, among[place] == slots


def _taken(value: _Rows, names: tuple[str, ...], rows: IntArray, **changes: Any) -> _Rows:
    """The value with these rows of its arrays."""
    for name in names:
        array = getattr(value, name)
        if array is not None:
            changes[name] = array[rows]
    return msgspec.structs.replace(value, **changes)
