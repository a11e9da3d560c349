"""Is a plan one that the engine can run?"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.values import Level, SpecPlan, StepContext


def plan_fault(plan: object, context: StepContext) -> str:
    """What is wrong with a plan, in a few words; empty if it can run.

    Checked: type, shape, integer K within 0..draft_available, depth within 0..Kmax, one K of the
    ladder at level UNIFORM (requests with fewer drafts available take what they have), finite
    predictions where given.
    """
    if not isinstance(plan, SpecPlan):
        return f"plan is a {type(plan).__name__}, not a SpecPlan"
    verify = plan.verify
    if not isinstance(verify, np.ndarray) or verify.dtype.kind not in "iu":
        return "plan.verify is not an integer array"
    if verify.shape != (context.batch_size,):
        return f"plan.verify has shape {verify.shape} for {context.batch_size} requests"
    kmax = context.capability.max_draft_tokens
    depth = plan.draft_depth
    if isinstance(depth, float) or not 0 <= depth <= kmax:
        return f"plan.draft_depth {depth!r} leaves 0..{kmax}"
    if verify.size and (verify.min() < 0 or (verify > context.draft_available).any()):
        return "plan.verify leaves 0..draft_available"
    if context.capability.level is Level.UNIFORM and verify.size:
        k = int(verify.max())
        if (verify != np.minimum(k, context.draft_available)).any():
            return "plan.verify is not uniform on an engine that needs one K per batch"
        if k not in context.capability.uniform_values and (context.draft_available > k).any():
            return f"K = {k} is not in the engine's ladder {context.capability.uniform_values}"
    if math.isinf(plan.predicted_seconds) or plan.predicted_seconds < 0:
        return f"plan.predicted_seconds is {plan.predicted_seconds}"
    return ""
