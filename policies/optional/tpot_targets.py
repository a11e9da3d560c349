"""TPOT targets: more drafts for requests behind their latency target, at a bounded price.

A request may ask for seconds per output token. A request is late while its mean exceeds the target.
The plan is made without targets first; each late request then gets the fewest drafts with

    T / (1 + S_i(K_i)) <= target_i

where T is the duration of the step and S_i(K) the sum of the survivals of the first K drafts. Three
rules keep the target of one client from harming another client:

* No K_i falls because of a target. At level UNIFORM, K rises for the whole batch.
* T grows by the relative `allowance` at most, so no other request loses more than
  allowance / (1 + allowance) of its predicted tokens per second.
* A target that cannot be reached within the allowance is ignored, and the plan's reason says so.

Whether speculation pays is judged by the plan without targets. All inputs are stale, so the output
distribution does not change.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.policies.planning.planner import is_ragged
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.step import BoolArray, FloatArray, IntArray, Level, SpecPlan, StepContext

OUT_OF_REACH = "a TPOT target is out of reach"
RAISED = "more drafts for TPOT targets"


class TpotTargets:
    """Mean seconds per token of each request, and the drafts that late requests need.

    Args:
        allowance: largest relative lengthening of a step, > 0.
    """

    def __init__(self, allowance: float) -> None:
        self._allowance = allowance
        self._began, self._tokens = floats(float("nan")), floats(0.0)

    def late(self, context: StepContext) -> BoolArray | None:
        """Return [B] whether each request is behind its target; None if none is."""
        slots, target = context.slots, context.tpot_target
        began = self._began[slots]
        began = np.where(np.isnan(began), context.now, began)
        self._began[slots] = began
        late: BoolArray = context.now - began > target * np.maximum(self._tokens[slots], 1.0)
        return late if late.any() else None

    def emitted(self, slots: IntArray, tokens: IntArray) -> None:
        """Count tokens [B] that reached these requests."""
        self._tokens[slots] = self._tokens[slots] + tokens

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of requests that have ended."""
        self._began.reset(slots)
        self._tokens.reset(slots)

    def raised(self, plan: SpecPlan, forecast: StepForecast, late: BoolArray) -> SpecPlan:
        """Return the plan with the drafts that late requests need.

        Args:
            plan: plan of this forecast, made without targets.
            forecast: forecast of the step.
            late: [B] result of `late`.
        """
        context = forecast.context
        tokens = _tokens_by_k(forecast)
        present = tokens[plan.verify, np.arange(context.batch_size)]
        seconds = _seconds(forecast, plan.verify, plan.draft_depth)
        needy = late & (seconds > context.tpot_target * present)
        if not needy.any():
            return plan
        limit = (1.0 + self._allowance) * seconds
        search = _one_k if context.capability.level is Level.UNIFORM else _k_of_each
        wanted, reached = search(forecast, plan, tokens, needy, limit)
        depth = plan.draft_depth
        if context.capability.steers_depth:
            depth = max(depth, int(wanted.max()))
        verify = np.maximum(plan.verify, np.minimum(wanted, context.draft_available))
        if _seconds(forecast, verify, depth) > limit:  # with the padding of this number of tokens
            verify = plan.verify
        reason = plan.reason
        if depth > plan.draft_depth or (verify > plan.verify).any():
            reason = f"{reason}, {RAISED}"
        if not reached:
            reason = f"{reason}, {OUT_OF_REACH}"
        return forecast.predicted_plan(verify, depth, plan.mode, reason, measures=plan.measures)


def _tokens_by_k(forecast: StepForecast) -> FloatArray:
    """Return [Kmax + 1, B] tokens that each request is expected to emit with K drafts."""
    kmax, batch = forecast.survival.shape
    tokens = np.ones((kmax + 1, batch))
    tokens[1:] += np.cumsum(forecast.survival, axis=0)
    return tokens


def _seconds(forecast: StepForecast, verify: IntArray, depth: int) -> float:
    return forecast.seconds_of(int(verify.sum()), depth, ragged=is_ragged(verify))


def _k_of_each(
    forecast: StepForecast, plan: SpecPlan, tokens: FloatArray, needy: BoolArray, limit: float
) -> tuple[IntArray, bool]:
    """Return the K_i [B] that targets need, 0 elsewhere, and whether every needy request has one.

    Requests that need the fewest more drafts come first, ties in row order, until the limit.
    """
    context, capability = forecast.context, forecast.context.capability
    rows = np.flatnonzero(needy)
    k, now = np.arange(len(tokens))[:, None], plan.verify[rows]
    drafts = int(plan.verify.sum())
    # Beyond Kmax drafts for each request there is no time; such K are not possible anyway.
    total = np.minimum(drafts + np.maximum(k - now, 0), len(forecast.verify_seconds) - 1)
    # A batch of one request is never ragged.
    factor = 1.0 + (capability.ragged_penalty if context.batch_size > 1 else 0.0)
    drafting = np.array([forecast.drafting_seconds(max(plan.draft_depth, d)) for d in k[:, 0]])
    seconds = factor * forecast.verify_seconds[total] + drafting[:, None]
    enough = seconds <= context.tpot_target[rows] * tokens[:, rows]
    usable = enough & (k > now) & (k <= context.draft_possible[rows]) & (seconds <= limit)
    wanted = np.zeros_like(plan.verify)
    found = usable.any(axis=0)
    if not found.any():
        return wanted, False
    least = np.argmax(usable, axis=0)[found]
    rows, more = rows[found], least - now[found]
    order = np.argsort(more, kind="stable")
    rows, more, least = rows[order], more[order], least[order]
    together = np.minimum(drafts + np.cumsum(more), len(forecast.verify_seconds) - 1)
    deepest = np.maximum.accumulate(least)
    fits = factor * forecast.verify_seconds[together] + drafting[deepest] <= limit
    count = int(np.cumprod(fits).sum())
    wanted[rows[:count]] = least[:count]
    return wanted, bool(found.all()) and count == len(rows)


def _one_k(
    forecast: StepForecast, plan: SpecPlan, tokens: FloatArray, needy: BoolArray, limit: float
) -> tuple[IntArray, bool]:
    """Return the smallest K of the ladder with most targets reached, [B], and whether all are."""
    context = forecast.context
    rows, present = np.flatnonzero(needy), int(plan.verify.max())
    best, most = np.zeros_like(plan.verify), 0
    for k in context.capability.uniform_values:
        verify = np.minimum(context.draft_possible, k)
        seconds = _seconds(forecast, verify, max(k, plan.draft_depth))
        if k <= present or seconds > limit:
            continue
        reached = int((seconds <= context.tpot_target[rows] * tokens[verify[rows], rows]).sum())
        if reached > most:
            best, most = np.full_like(plan.verify, k), reached
    return best, most == len(rows)
