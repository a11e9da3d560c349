"""Policies that record what they are told, and ones that misbehave."""

from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import FinishedStep, IntArray, Mode, SpecPlan, StepContext, StepOutcome


class Options(msgspec.Struct, frozen=True):
    pass


class RecordingPolicy(StatelessPolicy):
    """Walks through the ladder, a step each; fails every `fails` steps."""

    name: ClassVar[str] = "recording"
    summary: ClassVar[str] = "for tests"
    Options: ClassVar[type[msgspec.Struct]] = Options

    def __init__(self, fails: int = 0, hold: int = 1) -> None:
        self.fails, self.hold = fails, hold
        self.contexts: list[StepContext] = []
        self.plans: list[SpecPlan] = []
        self.outcomes: list[StepOutcome] = []
        self.freed: list[int] = []

    def k_of(self, step: int, ladder: tuple[int, ...]) -> int:
        return ladder[(step // self.hold) % len(ladder)]

    def plan(self, context: StepContext) -> SpecPlan:
        self.contexts.append(context)
        if self.fails and context.step % self.fails == 0:
            raise RuntimeError("planted")
        ladder = context.capability.uniform_values
        k = self.k_of(context.step, ladder)
        plan = SpecPlan(
            step=context.step,
            verify=np.minimum(context.draft_available, k),
            draft_depth=self.k_of(context.step + 1, ladder),
            mode=Mode.ON,
            reason="test",
        )
        self.plans.append(plan)
        return plan

    def observe(self, step: FinishedStep) -> None:
        self.outcomes.append(step.outcome)

    def forget(self, slots: IntArray) -> None:
        self.freed += slots.tolist()
