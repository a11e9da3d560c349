"""Which plans can run and which outcomes can be true, and the engine's own K for all others.

A plan that breaks a limit of the engine is refused, and the engine's own K runs. An outcome that no
engine can have run is not learned.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from adaptive_spec.audit.blocks import Arm
from adaptive_spec.per_request import exceeds, highest_of, lowest_of, sum_of
from adaptive_spec.policy_helpers import nearest_allowed
from adaptive_spec.step import Capability, Level, Mode, SpecPlan, StepContext, StepOutcome


def outcome_fault(outcome: StepOutcome, capability: Capability) -> str:
    """Describe what is impossible about an outcome in a few words; empty if nothing is.

    Checks: rows of one length, 0 <= accepted <= verified <= Kmax, emitted tokens and slots not
    negative, totals that fit the batch, depth within 0..Kmax. Durations are left to the cost model,
    and requests that the context lacks to `finished_step`: both leave out what they cannot use.
    """
    slots, verified, accepted = outcome.slots, outcome.verified, outcome.accepted
    kmax, batch = capability.max_draft_tokens, outcome.batch_size
    if not slots.shape == verified.shape == accepted.shape == outcome.emitted.shape:
        return "rows differ in number"
    if slots.size:
        if lowest_of(accepted) < 0 or highest_of(verified) > kmax or exceeds(accepted, verified):
            return "not 0 <= accepted <= verified <= Kmax"
        if lowest_of(outcome.emitted) < 0 or lowest_of(slots) < 0:
            return "a negative count or slot"
        agreed = outcome.lookup_agreed
        if agreed is not None and (agreed.shape != slots.shape or agreed.min() < 0):
            return "looked-up drafts are not counted by request"
    if not slots.size <= batch <= outcome.batch_tokens:
        return "totals do not fit the batch"
    if not 0 <= outcome.draft_depth <= kmax:
        return "draft depth leaves 0..Kmax"
    return "a negative count" if min(outcome.context_tokens, outcome.prefill_tokens) < 0 else ""


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


def audit_plan(context: StepContext, arm: Arm) -> SpecPlan:
    """Build the plan of another arm: the engine's own K, as in shadow mode, or no drafts."""
    if arm == "none":
        return SpecPlan(
            step=context.step,
            verify=np.zeros(context.batch_size, dtype=np.int64),
            draft_depth=0,
            mode=Mode.OFF_WARM,
            reason="audit: no drafts",
        )
    plan = engine_plan(context, mode=Mode.SHADOW)
    return msgspec.structs.replace(plan, reason="audit: engine's own K")


def with_usable_depth(plan: SpecPlan, context: StepContext) -> SpecPlan:
    """Return the plan, drafting no deeper than any request can use after the step.

    Where the engine does not say what requests in their prompts can use, the plan stays as it is.
    """
    most = context.prompt_possible
    if most is None or plan.draft_depth <= most:
        return plan
    if context.batch_size:
        most = max(most, highest_of(context.draft_possible))
    if context.capability.level is Level.UNIFORM:
        most = min(k for k in (*context.capability.uniform_values, plan.draft_depth) if k >= most)
    if plan.draft_depth <= most:
        return plan
    return msgspec.structs.replace(plan, draft_depth=most)


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
        measures=True,
    )


# Made once: the union of two types takes longer than a check of it.
_WHOLE, _REAL = (int, np.integer), (float, int)


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
    if isinstance(depth, bool) or not isinstance(depth, _WHOLE):
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
    if lowest_of(verify) < 0 or exceeds(verify, limit):
        return "plan.verify leaves 0..draft_available"
    if context.capability.level is Level.UNIFORM and verify.size:
        k, ladder = highest_of(verify), context.capability.uniform_values
        # None is above its limit, so that equal sums mean equal rows.
        if sum_of(verify) != sum_of(np.minimum(k, context.draft_available)):
            return "plan.verify is not uniform on an engine that needs one K per batch"
        if k not in ladder and highest_of(context.draft_available) > k:
            return f"plan.verify is not in the engine's ladder: K = {k}, {ladder}"
    mode: object = plan.mode
    reason: object = plan.reason
    if not isinstance(mode, Mode) or not isinstance(reason, str):
        return "plan.mode is no Mode, or plan.reason no text"
    for what, value in (
        ("predicted_tokens", plan.predicted_tokens),
        ("predicted_seconds", plan.predicted_seconds),
    ):
        if not isinstance(value, _REAL) or math.isinf(value) or value < 0:
            return f"plan.{what} is not finite and at least 0: {value!r}"
    for note in plan.notes:
        if not isinstance(note, np.ndarray) or note.shape[:1] != verify.shape:
            return "plan.notes are not arrays with one row per request"
    return ""
