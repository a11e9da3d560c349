"""Policies for tests that end the drafter's loop."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from switchable_policies import NoOptions, RandomPolicy

from adaptive_spec.step import DraftPass, DraftVerdict, Mode, SpecPlan, StepContext


class StoppingPolicy(RandomPolicy):
    """Plans the full depth, and verifies all that is left.

    Attributes:
        keeps: the most drafts that are kept: one number for all requests, or [B].
        asked: the passes it was asked about.
    """

    name: ClassVar[str] = "stopping"

    def __init__(self, options: NoOptions | None = None, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self.keeps: Any = 2
        self.asked: list[DraftPass] = []

    def plan(self, context: StepContext) -> SpecPlan:
        return SpecPlan(
            step=context.step,
            verify=context.draft_available,
            draft_depth=context.capability.max_draft_tokens,
            mode=Mode.ON,
            reason="all that is left",
        )

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        self.asked.append(draft)
        keeps = draft.drafting & (draft.position < self.keeps)
        return DraftVerdict(keeps, keeps & (draft.position + 1 < self.keeps))


class RandomStopper(StoppingPolicy):
    """Draws for each request whether a pass is kept and goes on; now and then the depth."""

    name: ClassVar[str] = "random_stopper"

    def plan(self, context: StepContext) -> SpecPlan:
        plan = super().plan(context)
        if self._random.random() < 0.7:
            return plan
        depth = int(self._random.integers(0, context.capability.max_draft_tokens + 1))
        return SpecPlan(
            step=plan.step, verify=plan.verify, draft_depth=depth, mode=plan.mode, reason="random"
        )

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        self.asked.append(draft)
        keep, go_on = self._random.random((2, len(draft.slots))) < [[0.8], [0.75]]
        return DraftVerdict(draft.drafting & keep, draft.drafting & keep & go_on)


class RaisingStopper(StoppingPolicy):
    """Fails after the second pass of each round, when it has given one request up."""

    name: ClassVar[str] = "raising_stopper"

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        self.asked.append(draft)
        if draft.position:
            raise RuntimeError("planned failure")
        going = draft.drafting.copy()
        going[:1] = False
        return DraftVerdict(draft.drafting, going)


def shown(draft: DraftPass) -> Any:
    """Where something is known, [B, position + 1]."""
    return ~np.isnan(draft.confidence)


RANDOM = {
    "policy": "stopping_policies:RandomStopper",
    "seed": 5,
    "memory_guard": False,
    # On a busy machine a decision may be late; here it counts whether it was carried out.
    "fail_open": {"max_decision_ms": 60_000},
}
"""A configuration under which draft loops end at random."""
