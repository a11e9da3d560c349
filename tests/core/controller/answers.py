"""A controller whose policy answers with what a test gives it, and steps for it."""

from typing import Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec import Capability, Config, Controller, Level, Mode, SpecPlan
from adaptive_spec.config import FailOpen
from adaptive_spec.policies.static import StaticOptions
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import StepContext, StepOutcome
from tests import steps

FULL = Capability(level=Level.FULL, max_draft_tokens=4)
PATIENT = FailOpen(max_decision_ms=60_000)
"""For counts that a slow machine must not change."""


def context(step: int, now: float = 0.0, **changes: Any) -> StepContext:
    fields = dict(
        capability=FULL,
        request_ids=["a", "b", "c"],
        context_tokens=[10, 20, 30],
        draft_available=[4, 2, 0],
        engine_k=3,
    )
    return steps.context(3, step=step, now=now, **(fields | changes))


def outcome(step: int, now: float = 0.0) -> StepOutcome:
    return steps.outcome(context(step, now), [3, 2, 0], [1, 2, 0])


class Answer(StatelessPolicy):
    """Answers with whatever it is given."""

    name: ClassVar[str] = "answer"
    summary: ClassVar[str] = "test"
    Options: ClassVar[type[msgspec.Struct]] = StaticOptions

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def plan(self, context: StepContext) -> SpecPlan:
        self.asked += 1
        return self.answer(context) if callable(self.answer) else self.answer


def plan(context: StepContext, **changes: Any) -> SpecPlan:
    values: dict[str, Any] = {
        "step": context.step,
        "verify": np.array([1, 1, 0]),
        "draft_depth": 2,
        "mode": Mode.ON,
        "reason": "test",
    }
    return SpecPlan(**{**values, **changes})


def controller(answer: Any, **config: Any) -> Controller:
    return Controller(Answer(answer), FULL, Config(**config))
