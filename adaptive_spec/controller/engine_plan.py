"""The engine's own K: what runs where a policy's plan cannot, and what a policy may plan with."""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import nearest_allowed
from adaptive_spec.step import Level, Mode, SpecPlan, StepContext


def engine_plan(context: StepContext, mode: Mode = Mode.ENGINE) -> SpecPlan:
    """Build a plan with the engine's own K."""
    return SpecPlan(
        step=context.step,
        verify=np.minimum(context.draft_available, context.engine_k),
        draft_depth=context.engine_k,
        mode=mode,
        reason="engine's own K",
    )


def with_engine_k_that_runs(context: StepContext) -> StepContext:
    """Round the engine's own K down to its ladder, so that a policy may plan it.

    An engine's own table may hold K that no uniform plan can take.
    """
    if context.capability.level is not Level.UNIFORM:
        return context
    ladder = context.capability.uniform_values
    if context.engine_k in ladder:
        return context
    return msgspec.structs.replace(context, engine_k=nearest_allowed(context.engine_k, ladder))
