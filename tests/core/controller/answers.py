"""A controller whose policy answers with what a test gives it, and steps for it."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec import Capability, Config, Controller, Level, Mode, SpecPlan
from adaptive_spec.config import FailOpen
from adaptive_spec.policies.static import StaticOptions
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import StepContext, StepOutcome

FULL = Capability(level=Level.FULL, max_draft_tokens=4)
PATIENT = FailOpen(max_decision_ms=60_000)
"""For counts that a slow machine must not change."""


def context(step: int, now: float = 0.0, **changes: Any) -> StepContext:
    base = StepContext(
        step=step,
        capability=FULL,
        request_ids=["a", "b", "c"],
        slots=np.arange(3),
        context_tokens=np.array([10, 20, 30]),
        draft_available=np.array([4, 2, 0]),
        draft_possible=np.array([4, 4, 4]),
        engine_k=3,
        tpot_target=np.full(3, np.inf),
        task=np.full(3, -1),
        temperature=np.zeros(3),
        now=now,
    )
    return msgspec.structs.replace(base, **changes)


def outcome(step: int, now: float = 0.0) -> StepOutcome:
    return StepOutcome(
        step=step,
        slots=np.arange(3),
        verified=np.array([3, 2, 0]),
        accepted=np.array([1, 2, 0]),
        emitted=np.array([2, 3, 1]),
        batch_size=3,
        batch_tokens=8,
        context_tokens=60,
        prefill_tokens=0,
        draft_depth=3,
        ragged=True,
        seconds=0.01,
        now=now,
    )


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
