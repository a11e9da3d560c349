"""Steps of a batch of eight that ran, for policies that learn from them."""

import numpy as np

from adaptive_spec import Level
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.step import Capability, FinishedStep, SpecPlan, StepContext
from tests import steps

KMAX, BATCH = 4, 8


def context(step: int, depth: int, level: Level = Level.FULL, **changes) -> StepContext:
    fields = dict(
        capability=Capability(level=level, max_draft_tokens=KMAX),
        draft_available=min(KMAX, depth),
        now=float(step),
    )
    return steps.context(BATCH, step=step, **(fields | changes))


def outcome(plan: SpecPlan, verified: np.ndarray | None = None, seconds: float = 0.01):
    ran = plan.verify if verified is None else verified
    return steps.outcome(
        steps.context(BATCH, KMAX, step=plan.step),
        ran,
        ran // 2,
        draft_depth=plan.draft_depth,
        ragged=False,
        seconds=seconds,
    )


def finished(now: StepContext, plan: SpecPlan, verified: np.ndarray | None = None) -> FinishedStep:
    return finished_step(now, plan, outcome(plan, verified))
