"""Plan from one K per request, for baselines that derive K from finished rounds."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policy_helpers import nearest_allowed
from adaptive_spec.step import IntArray, Level, Mode, SpecPlan, StepContext


def per_request_plan(
    context: StepContext, wanted: IntArray, reason: str, *, empty: int, uniform: int | None = None
) -> SpecPlan:
    """Verify `wanted` [B] drafts of each request and draft to the largest of them.

    Args:
        context: context of the step.
        wanted: [B] K_i, >= 0, from values of finished rounds.
        reason: reason of the plan, for people.
        empty: draft depth without decoding requests.
        uniform: K for all at level UNIFORM; None: the largest K_i.
    """
    capability = context.capability
    deepest = min(int(wanted.max(initial=0)), capability.max_draft_tokens)
    if not wanted.size:
        deepest = empty
    if capability.level is Level.UNIFORM:
        k = nearest_allowed(deepest if uniform is None else uniform, capability.uniform_values)
        wanted, deepest = np.full(context.batch_size, k, dtype=np.int64), k
    return SpecPlan(
        step=context.step,
        verify=np.minimum(wanted, context.draft_available),
        draft_depth=deepest,
        mode=Mode.ON if deepest else Mode.OFF_WARM,
        reason=reason,
    )
