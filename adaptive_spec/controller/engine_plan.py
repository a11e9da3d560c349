"""The engine's own K: what runs where a policy's plan cannot, and what a policy may plan with."""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import nearest_allowed
from adaptive_spec.step import Level, Mode, SpecPlan, StepContext

_BLOCK_STEPS = 16
"""Steps of shadow mode with one drawn K."""


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


def shadow_plan(
    context: StepContext, seen: StepContext, share: float, seed: int, *, may_act: bool
) -> SpecPlan:
    """Return the plan that runs in mode ``shadow``: the engine's own K, and in some steps another.

    A trace in which only one K ran cannot tell what others cost or gain. Blocks of `_BLOCK_STEPS`
    steps run a K that is drawn for the block, since the K of a step can be no larger than the depth
    drafted in the step before. The draw depends on the seed and the number of the block alone, so
    ranks that plan for themselves agree.

    Args:
        context: the step.
        seen: the step after the memory guard, which limits the drafts of a drawn K.
        share: share of the blocks that run a drawn K, 0 to 1.
        seed: of the draws.
        may_act: the engine may run other K than its own.
    """
    if share <= 0.0 or not may_act:
        return engine_plan(context, mode=Mode.SHADOW)
    draws = np.random.default_rng((seed, context.step // _BLOCK_STEPS)).random(2)
    if draws[0] >= share:
        return engine_plan(context, mode=Mode.SHADOW)
    values = context.capability.uniform_values
    k = values[int(draws[1] * len(values))]
    return SpecPlan(
        step=context.step,
        verify=np.minimum(seen.draft_available, k),
        draft_depth=k,
        mode=Mode.ON if k else Mode.OFF_WARM,
        reason=f"shadow tries K = {k}",
    )
