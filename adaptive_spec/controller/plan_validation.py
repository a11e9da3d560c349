"""Validation of plans against the engine's limits."""

from __future__ import annotations

import math
from operator import gt

import numpy as np

from adaptive_spec.step import Level, Mode, SpecPlan, StepContext


def plan_fault(plan: object, context: StepContext) -> str:
    """Describe the fault of a plan in a few words; empty if the engine can run the plan.

    Checks: type, shape, integer K within what the request's source has ready, depth within
    0..Kmax, one K of the ladder at level UNIFORM (requests with fewer available drafts use all of
    theirs), finite predictions where given, one row per request in each note.
    """
    if not isinstance(plan, SpecPlan):
        return f"plan is a {type(plan).__name__}, not a SpecPlan"
    verify = plan.verify
    if not isinstance(verify, np.ndarray) or verify.dtype.kind not in "iu":
        return "plan.verify is not an integer array"
    if verify.shape != (context.batch_size,):
        return f"plan.verify has the wrong shape: {verify.shape}, B is {context.batch_size}"
    kmax = context.capability.max_draft_tokens
    depth = plan.draft_depth
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer):
        return f"plan.draft_depth is no integer: {depth!r}"
    if not 0 <= depth <= kmax:
        return f"plan.draft_depth leaves 0..Kmax: {depth}, Kmax is {kmax}"
    limit, looked_up = context.draft_available, plan.from_lookup
    if looked_up is not None:
        if context.lookup_available is None or context.capability.level is Level.UNIFORM:
            return "plan.from_lookup on an engine that has no drafts to choose among"
        if not isinstance(looked_up, np.ndarray) or looked_up.dtype != np.bool_:
            return "plan.from_lookup is no array of booleans"
        if looked_up.shape != verify.shape:
            return f"plan.from_lookup has the wrong shape: {looked_up.shape}"
        limit = np.where(looked_up, context.lookup_available, limit)
    wanted = verify.tolist()
    if wanted and (min(wanted) < 0 or any(map(gt, wanted, limit.tolist()))):
        return "plan.verify leaves 0..draft_available"
    if context.capability.level is Level.UNIFORM and verify.size:
        k = int(verify.max())
        if (verify != np.minimum(k, context.draft_available)).any():
            return "plan.verify is not uniform on an engine that needs one K per batch"
        if k not in context.capability.uniform_values and (context.draft_available > k).any():
            ladder = context.capability.uniform_values
            return f"plan.verify is not in the engine's ladder: K = {k}, {ladder}"
    mode: object = plan.mode
    reason: object = plan.reason
    if not isinstance(mode, Mode) or not isinstance(reason, str):
        return "plan.mode is no Mode, or plan.reason no text"
    for what, value in (
        ("predicted_tokens", plan.predicted_tokens),
        ("predicted_seconds", plan.predicted_seconds),
    ):
        if not isinstance(value, float | int) or math.isinf(value) or value < 0:
            return f"plan.{what} is not finite and at least 0: {value!r}"
    for note in plan.notes:
        if not isinstance(note, np.ndarray) or note.shape[:1] != verify.shape:
            return "plan.notes are not arrays with one row per request"
    return ""
