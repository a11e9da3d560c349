"""Baseline: vLLM's adaptive verification (`enable_adaptive_verification`).

Rule: acceptance a_ij = sigmoid(w x_ij + b_j) from the log-odds x of the drafter's maximum
probability, fitted online (`VllmAcceptanceEstimator`); survival S_ij = a_i1 ... a_ij. The rule
verifies the B* available drafts with the largest live survival, where

    B* = argmax over m of (B + sum of the m largest old survivals) / (draft(B) + verify(T + m)),

T is the number of tokens of the step that are no drafts; old survivals come from the drafts of the
round before, 1 for new requests; costs come from tables made before serving (`profiled_curves`).
The search covers every m, so that a staircase or a falling cost does not mislead it.

Source: vllm/v1/worker/gpu/spec_decode/adaptive_verification.py and acceptance_estimator.py of vLLM
0.32. Granularity: L1. vLLM needs a confidence signal; without one, the engine's own K runs here.
vLLM refuses an engine with one K per batch; here it gets the best K by the old survivals. The
choice by live survivals is lossless for sampled drafts, too.

With the option `profile`, cost tables are made as in vLLM; without, step times are learned online,
unlike the original. Of the requests in prefill only the tokens are known here: requests whose
prompt ends in the step are not counted in B.

Faults kept: the full draft is always made, and its cost only shifts the ratio; context is priced
once, at 8,192 tokens; a new request is expected to accept all drafts; never off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.sim.baselines.parts.drafts import (
    log_odds,
    most_likely,
    observed,
    sigmoid,
    survival_of,
)
from adaptive_spec.sim.baselines.parts.start_up_profile import StartUpProfile
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
)

_MEASURING_PERIOD = 4
"""Steps from one step that may measure to the next."""
PROFILED_CONTEXT = 8192
"""Context per request while profiling (tokens)."""
_MOST_TOKENS = 8192
_WITHOUT_GRAPHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class CostCurve:
    """Non-decreasing cost by size.

    Args:
        sizes: measured sizes, ascending.
        costs: cost of each size; any unit.
        graph_limit: largest captured size; 0 without captured sizes, when sizes snap to the next
            measured one.
    """

    def __init__(self, sizes: Sequence[int], costs: Sequence[float], graph_limit: int) -> None:
        self._sizes: FloatArray = np.asarray(sizes, dtype=np.float64)
        self._costs: FloatArray = np.maximum.accumulate(np.asarray(costs, dtype=np.float64))
        self._graph_limit = graph_limit

    def at(self, sizes: IntArray) -> FloatArray:
        """Return the cost at these sizes."""
        x, y = self._sizes, self._costs
        cost: FloatArray = y[np.minimum(np.searchsorted(x, sizes, side="left"), len(x) - 1)]
        outside = x > self._graph_limit
        if self._graph_limit and outside.any():
            # Cost jumps where the graphs end, so do not interpolate across the jump.
            smooth = sizes > self._graph_limit
            cost[smooth] = np.interp(sizes[smooth], x[outside], y[outside])
        if len(x) > 1:
            after = sizes > x[-1]
            slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
            cost[after] = y[-1] + slope * (sizes[after] - x[-1])
        return cost


def profiled_curves(profile: CostProfile, capability: Capability) -> tuple[CostCurve, CostCurve]:
    """Return curves of drafting by requests and of verifying by tokens (seconds).

    Times of dummy steps at the captured graph sizes, and at larger sizes (1.5 x the last, then
    doubling), form a non-decreasing curve: a staircase over the captured sizes, where a step runs
    as the next captured one, and linear beyond. Each dummy step has 8,192 tokens of context per
    request, whatever the traffic. A cost profile replaces the dummy steps (upstream:
    `batches_to_profile`).

    A dummy step of n tokens has ceil(n / (Kmax + 1)) requests.
    """
    kmax = capability.max_draft_tokens
    captured = [size for size in capability.token_buckets if size <= _MOST_TOKENS]
    sizes = sorted({*captured, *_past(captured[-1])}) if captured else list(_WITHOUT_GRAPHS)
    graph_limit = captured[-1] if captured else 1
    tokens = np.array(sizes, dtype=np.float64)
    requests = np.ceil(tokens / (kmax + 1))
    known, seconds = np.array(profile.tokens, dtype=np.float64), np.array(profile.seconds)
    verify = np.interp(tokens, known, seconds)
    slope = (seconds[-1] - seconds[-2]) / (known[-1] - known[-2])
    verify += slope * np.maximum(tokens - known[-1], 0.0)
    verify += profile.any_draft
    verify += requests * (
        profile.per_request
        + profile.any_draft_per_request
        + profile.per_context_token * PROFILED_CONTEXT
    )
    batches = np.unique(requests)
    draft = kmax * (profile.draft_pass + profile.draft_pass_per_request * batches)
    draft_limit = int(np.ceil(graph_limit / (kmax + 1)))
    return (
        CostCurve([int(size) for size in batches], draft.tolist(), draft_limit),
        CostCurve(sizes, verify.tolist(), graph_limit),
    )


def _past(last: int) -> list[int]:
    """Return the profiled sizes beyond the captured ones."""
    sizes = [min(last + last // 2, _MOST_TOKENS)]
    while last < _MOST_TOKENS:
        last = min(2 * last, _MOST_TOKENS)
        sizes.append(last)
    return sizes


REFIT_STEPS = 100
_DAMPING = 50.0
_RIDGE = 1e-3
_FIRST = 0.5, -0.2


class VllmAcceptanceEstimator:
    """Acceptance of drafts, conditional on earlier drafts, from log-odds of max q.

        p_ij = sigmoid(w x_ij + b_j),    x = logit(max q_ij), within +-40

    Each step adds the judged drafts (accepted ones, and the first rejected one) to Newton
    statistics at the coefficients of their prediction. Every 100 steps one Newton step with ridge
    1e-3 follows, and the statistics are reset. A negative slope is discarded.

    One slope w serves all positions. With n_j judged drafts at position j, the step of w is damped
    by n / (n + 50), n = sum n_j, and the step of b_j, given w, by n_j / (n_j + 50). Initial values:
    w = 0.5, b = -0.2.

    Args:
        positions: Kmax.

    Attributes:
        slope: [Kmax] w, equal at all positions.
        intercept: [Kmax] b.
    """

    def __init__(self, positions: int) -> None:
        slope, intercept = _FIRST
        self.slope: FloatArray = np.full(positions, slope)
        self.intercept: FloatArray = np.full(positions, intercept)
        self._steps = 0
        self._begin_round()

    def predict(self, features: FloatArray) -> FloatArray:
        """Return [B, Kmax] acceptance for log-odds [B, Kmax]; nan stays nan."""
        return sigmoid(self.slope * features + self.intercept)

    def add_judged(
        self, features: FloatArray, predicted: FloatArray, verified: IntArray, accepted: IntArray
    ) -> None:
        """Add a step's judged drafts, and refit every 100 steps.

        Args:
            features: [B, Kmax] log-odds of the step's drafts, nan where unknown.
            predicted: [B, Kmax] predictions from them.
            verified: [B] drafts verified.
            accepted: [B] accepted drafts.
        """
        seen, taken = observed(verified, accepted, features.shape[1])
        seen &= ~np.isnan(features)
        x = np.where(seen, features, 0.0)
        weight = np.where(seen, predicted * (1.0 - predicted), 0.0)
        residual = np.where(seen, taken - predicted, 0.0)
        self._slope_information += (weight * x * x).sum(axis=0)
        self._cross_information += (weight * x).sum(axis=0)
        self._intercept_information += weight.sum(axis=0)
        self._slope_gradient += (residual * x).sum(axis=0)
        self._intercept_gradient += residual.sum(axis=0)
        self._count += seen.sum(axis=0)
        self._steps += 1
        if self._steps >= REFIT_STEPS:
            self._steps = 0
            self._refit()
            self._begin_round()

    def _refit(self) -> None:
        """Take a Newton step on (w, b_1..b_K); b is eliminated, as only w couples the others."""
        diagonal = self._intercept_information + _RIDGE
        cross, by_intercept = self._cross_information, self._intercept_gradient
        gradient = self._slope_gradient.sum() - (cross * by_intercept / diagonal).sum()
        curvature = self._slope_information.sum() + _RIDGE - (cross**2 / diagonal).sum()
        total = self._count.sum()
        change = gradient / curvature * (total / (total + _DAMPING))
        if not np.isfinite(change) or self.slope[0] + change < 0.0:
            change = 0.0
        shift = (by_intercept - cross * change) / diagonal
        shift *= self._count / (self._count + _DAMPING)
        self.slope = self.slope + change
        self.intercept = self.intercept + np.where(np.isfinite(shift), shift, 0.0)

    def _begin_round(self) -> None:
        positions = len(self.slope)
        self._slope_information: FloatArray = np.zeros(positions)
        self._intercept_information: FloatArray = np.zeros(positions)
        self._cross_information: FloatArray = np.zeros(positions)
        self._slope_gradient: FloatArray = np.zeros(positions)
        self._intercept_gradient: FloatArray = np.zeros(positions)
        self._count = np.zeros(positions)


class VllmAdaptiveVerificationOptions(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Options of `vllm_adaptive_verification`."""

    profile: str | None = None
    """File with a cost profile, in place of the original's start-up profiling; without one, step
    times are learned online by running the K whose times are not known.
    """


class VllmAdaptiveVerificationPolicy(StatelessPolicy):
    """Policy of logistic acceptance, a budget from the round before, and live ranking within it."""

    name: ClassVar[str] = "vllm_adaptive_verification"
    summary: ClassVar[str] = "verifies the drafts that pay, by confidence fitted online, vLLM"
    Options: ClassVar[type[msgspec.Struct]] = VllmAdaptiveVerificationOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="vLLM 0.32, v1/worker/gpu/spec_decode/adaptive_verification.py and "
        "acceptance_estimator.py",
        granularity=Level.VERIFY,
        faults="always drafts in full; context priced once, at 8,192 tokens; new requests are "
        "expected to accept all; never off",
    )

    def __init__(self, options: VllmAdaptiveVerificationOptions, *, seed: int = 0) -> None:
        del seed
        self._times = StartUpProfile(options.profile)
        self._tables: tuple[CostCurve, CostCurve] | None = None
        self._estimator: VllmAcceptanceEstimator | None = None

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the number of drafts by old confidences, and their choice by live ones."""
        if context.confidence is None:
            return fixed_plan(context, context.engine_k, "no confidence signal, engine's K")
        if self._estimator is None:
            self._begin(context.capability)
        assert self._estimator is not None
        live = self._estimator.predict(log_odds(context.confidence))
        verify, reason, measures = self._chosen(context, live)
        rungs = context.capability.uniform_values
        if context.capability.level is Level.UNIFORM:
            k = next((rung for rung in rungs if rung >= int(verify.max(initial=0))), rungs[-1])
            verify = np.minimum(context.draft_available, k)
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=rungs[-1],
            mode=Mode.ON,
            reason=reason,
            measures=measures,
            notes=(live,),
        )

    def observe(self, step: FinishedStep) -> None:
        """Learn the step's duration and accepted drafts."""
        if self._estimator is None:
            return
        confidence, outcome = step.context.confidence, step.outcome
        self._times.record(outcome)
        if step.plan.notes and confidence is not None:
            (predicted,) = step.plan.notes
            self._estimator.add_judged(
                log_odds(confidence), predicted, outcome.verified, outcome.accepted
            )

    def forget(self, slots: IntArray) -> None:
        """Reset these slots: new requests are expected to accept all drafts."""
        if self._estimator is not None:
            self._old.reset(slots)

    def _begin(self, capability: Capability) -> None:
        """Build estimator and cost tables."""
        self._times.start(capability)
        # New requests are expected to accept all drafts.
        self._old = floats(1.0, capability.max_draft_tokens)
        self._estimator = VllmAcceptanceEstimator(capability.max_draft_tokens)
        if self._times.profile is not None:
            self._tables = profiled_curves(self._times.profile, capability)

    def _chosen(self, context: StepContext, live: FloatArray) -> tuple[IntArray, str, bool]:
        """Return [B] the drafts to verify, the reason, and whether it is to measure step times."""
        available = context.draft_available
        old = self._old[context.slots]
        self._old[context.slots] = np.where(np.isnan(live), 1.0, live)
        measured = None
        if context.step % _MEASURING_PERIOD == 0:
            measured = self._times.unmeasured(context, room=0.0)
        if not self._times.ready:
            return available, "no step measured yet", True
        if measured is not None:
            return np.minimum(available, measured), "measuring", True
        seconds = self._seconds(context)
        survival = survival_of(old)
        if context.capability.level is Level.UNIFORM:
            k = best_uniform(survival, available, seconds, context.capability.uniform_values)
            return np.minimum(available, k), f"one K, {k}", False
        budget = best_budget(survival, available, seconds)
        verify = most_likely(survival_of(live), available, budget)
        return verify, f"budget {budget} of {int(available.sum())}", False

    def _seconds(self, context: StepContext) -> FloatArray:
        """Return [B * Kmax + 1] non-decreasing step times by verified drafts, with drafting."""
        if self._tables is None:
            return self._times.full_draft_seconds(context)
        draft, verify = self._tables
        batch = context.batch_size
        drafts = np.arange(batch * context.capability.max_draft_tokens + 1)
        seconds = verify.at(batch + context.prefill_tokens + drafts)
        seconds += draft.at(np.array([batch]))[0]
        return np.maximum(seconds, 1e-9, out=seconds)


def best_budget(survival: FloatArray, available: IntArray, seconds: FloatArray) -> int:
    """Return the number of drafts with the most expected tokens per second; ties go to the smaller.

    Args:
        survival: [B, Kmax] old survivals.
        available: [B] available drafts.
        seconds: [M + 1] step time with m drafts, M >= sum of `available`.
    """
    inside = np.arange(survival.shape[1]) < available[:, None]
    ranked = np.sort(survival[inside])[::-1]
    tokens = float(len(available)) + np.concatenate(([0.0], np.cumsum(ranked)))
    return int(np.argmax(tokens / seconds[: len(tokens)]))


def best_uniform(
    survival: FloatArray, available: IntArray, seconds: FloatArray, rungs: tuple[int, ...]
) -> int:
    """Return the K of `rungs` with the most expected tokens per second if all verify it."""
    position = np.arange(survival.shape[1])
    best, chosen = -1.0, rungs[0]
    for k in rungs:
        verify = np.minimum(available, k)
        value = float(np.sum(survival, where=position < verify[:, None]))
        goodput = (len(available) + value) / float(seconds[int(verify.sum())])
        if goodput > best:
            best, chosen = goodput, k
    return chosen
