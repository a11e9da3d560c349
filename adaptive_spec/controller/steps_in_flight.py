"""Planned steps whose results have not arrived yet.

Engines that schedule ahead report a step one or two steps late, without the requests that ended
meanwhile; a step without decoding requests may never be reported. Only this module remembers steps
by number: all other code gets a `FinishedStep` whose arrays have the rows of its outcome.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from adaptive_spec.audit.blocks import Placed
from adaptive_spec.step import (
    BoolArray,
    FinishedStep,
    IntArray,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_MOST_IN_FLIGHT = 64
"""Most steps kept (steps); engines schedule far fewer ahead."""

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
    "lookup_available",
    "lookup_match",
    "opted_out",
)
_PLAN_ROWS = ("verify", "propensity", "from_lookup")
_OUTCOME_ROWS = (
    "slots",
    "verified",
    "accepted",
    "emitted",
    "confidence",
    "entropy",
    "lookup_agreed",
)

_Rows = TypeVar("_Rows", StepContext, SpecPlan, StepOutcome)


class StepInFlight(NamedTuple):
    """A planned step.

    Attributes:
        context: the engine's context.
        plan: the plan given to the engine.
        seen: the context as the policy saw it, after the memory guard.
        wanted: the policy's own plan, which differs from `plan` in shadow mode and audit blocks
            only; `plan` where the policy made none.
        placed: place in or beside an audit block; None for most steps.
    """

    context: StepContext
    plan: SpecPlan
    seen: StepContext
    wanted: SpecPlan
    placed: Placed | None = None

    @property
    def to_learn_from(self) -> SpecPlan:
        """Return the policy's plan; without looked-up drafts where another plan ran."""
        if self.wanted.from_lookup is None or self.plan.from_lookup is not None:
            return self.wanted
        return msgspec.structs.replace(self.wanted, from_lookup=None)


class StepsInFlight:
    """Bounded table of planned steps by number."""

    def __init__(self) -> None:
        self._steps: dict[int, StepInFlight] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: StepInFlight) -> None:
        """Keep a step until `pop`; beyond the limit the oldest step is dropped."""
        self._steps[step.context.step] = step
        if len(self._steps) > _MOST_IN_FLIGHT:
            del self._steps[next(iter(self._steps))]

    def pop(self, number: int) -> StepInFlight | None:
        """Remove and return the step of this number, or None; drop older steps without results."""
        for older in [step for step in self._steps if step < number]:
            del self._steps[older]
        return self._steps.pop(number, None)

    def change_policy(self) -> None:
        """Remove notes and memos, which the new policy must not see."""
        for number, step in self._steps.items():
            wanted = msgspec.structs.replace(step.wanted, notes=(), memo=None)
            self._steps[number] = step._replace(wanted=wanted)


def finished_step(context: StepContext, plan: SpecPlan, outcome: StepOutcome) -> FinishedStep:
    """Join the values of a step on the rows of `outcome` that `context` has.

    Copies nothing while all requests are still alive.
    """
    planned, alive = context.slots, outcome.slots
    if planned is alive or (len(planned) == len(alive) and np.logical_and.reduce(planned == alive)):
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
    """Return [B] the index of each slot in `among`, and [B] whether it was found."""
    if not len(among):
        return np.zeros(len(slots), dtype=np.int64), np.zeros(len(slots), dtype=np.bool_)
    # Slots are few and dense: a table of them takes less time than a search.
    highest = among.max()
    place_of = np.zeros(highest + 1, dtype=np.int64)
    place_of[among] = np.arange(len(among))
    place = place_of[np.minimum(slots, highest)]
    return place, among[place] == slots


def _taken(value: _Rows, names: tuple[str, ...], rows: IntArray, **changes: Any) -> _Rows:
    """Select these rows of a value's arrays."""
    for name in names:
        array = getattr(value, name)
        if array is not None:
            changes[name] = array[rows]
    return msgspec.structs.replace(value, **changes)
