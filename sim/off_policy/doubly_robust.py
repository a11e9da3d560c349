"""Tokens per second of a policy that did not run: the doubly robust estimate.

With y_i the tokens that request i emitted, m_i predicted tokens, p_i the probability of the K_i
that ran and K'_i what the policy would have run, a request weighs rho_i = 1[K_i = K'_i] / p_i and

    tokens = sum m_i(K'_i) + rho_i (y_i - m_i(K_i))        (Dudík, Langford, Li, arXiv 1103.4601)

which is unbiased where either the probabilities or the predictions are right. Tokens are divided by
seconds. Where one K was drawn for the batch, its weight corrects predicted seconds in the same way.
Where requests were drawn one by one, no weight of a request can say what the step's time would have
been: seconds are the measured ones plus the predicted difference.

Prompts are charged by the emitted token, at what they took per emitted token in the record: in the
long run requests, and with them prompts, come as fast as tokens are emitted, not as steps pass.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.sim.off_policy.intervals import Estimate, Linearised, ratio
from adaptive_spec.sim.off_policy.logged_steps import DrawKind
from adaptive_spec.sim.off_policy.step_model import StepTimeRegression
from adaptive_spec.step import FloatArray, IntArray

_FEWEST_SAMPLES = 30.0
_FEWEST_BLOCKS = 5.0
"""Effective number of blocks by weight."""
_LEAST_SUPPORT = 0.95


class StepTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of the estimate from one recorded step, summed over its requests.

    Attributes:
        requests: decoding requests.
        tokens, seconds, prefill_tokens: what ran.
        weights, squares: sums of rho and of rho^2.
        model_tokens, model_seconds: predicted for the policy.
        weighted_errors: sum of rho (y - predicted tokens of what ran).
        second_error: measured less predicted seconds of what ran.
    """

    requests: float
    tokens: float
    seconds: float
    prefill_tokens: float
    weights: float
    squares: float
    model_tokens: float
    model_seconds: float
    weighted_errors: float
    second_error: float


class PolicyValue(msgspec.Struct, frozen=True, kw_only=True):
    """Value of a policy on the recorded steps. Estimates are tokens per second.

    Attributes:
        policy: as it was asked for.
        doubly_robust: None where no recorded decision is the policy's.
        gain: doubly robust over what ran, from the same steps.
        support: mean weight, about the share of the policy's decisions that the log could have
            run: 1 if all.
        effective_samples: independent samples that the weighted ones are worth (Kish): requests, or
            steps where one K was drawn.
        wants_deeper: share of steps at whose end it wanted deeper drafts than were made; what
            those would have brought is not in the trace.
        problem: why the estimate cannot be relied on; empty if it can.
    """

    policy: str
    doubly_robust: Estimate | None
    gain: Estimate | None
    support: Estimate
    effective_samples: float
    wants_deeper: float
    problem: str = ""


class Estimator(NamedTuple):
    """The estimates of all policies on a trace share these.

    Attributes:
        kind: what was drawn.
        time: the fitted step times.
        block: [steps] number of each step's block.
        confidence: of the intervals.
    """

    kind: DrawKind
    time: StepTimeRegression
    block: IntArray
    confidence: float

    def value(
        self, policy: str, terms: list[StepTerms], shifts: FloatArray, wants_deeper: float
    ) -> PolicyValue:
        """Return the estimates of one policy.

        Args:
            policy: its name.
            terms: one per step.
            shifts: [steps, F] how the features of step time would have differed: with the policy's
                K and depth (request), or its depth (batch).
            wants_deeper: see `PolicyValue`.
        """
        table = np.array([msgspec.structs.astuple(term) for term in terms], dtype=np.float64)
        column: dict[str, FloatArray] = dict(zip(StepTerms.__struct_fields__, table.T, strict=True))
        prompts = self.time.prompt_seconds(column["prefill_tokens"])
        prompts_by_token = ratio(prompts, column["tokens"])
        measured, predicted = column["seconds"] - prompts, column["model_seconds"] - prompts

        def rate(tokens: FloatArray, seconds: FloatArray, unsure: float = 0.0) -> Linearised:
            return ratio(tokens, seconds, unsure).with_added(prompts_by_token)

        robust = gain = None
        weights, squares = column["weights"], column["squares"]
        per_draw = 1.0 if self.kind is DrawKind.REQUEST else column["requests"]
        if weights.any():
            if self.kind is DrawKind.REQUEST:
                seconds = measured + shifts @ self.time.coefficients()
            else:
                seconds = predicted + weights / column["requests"] * column["second_error"]
            total = shifts.sum(axis=0)
            unsure = max(float(total @ self.time.covariance() @ total), 0.0)
            found = rate(column["model_tokens"] + column["weighted_errors"], seconds, unsure)
            robust = self._interval(found)
            gain = self._interval(found.over(rate(column["tokens"], measured)))
        support = self._interval(ratio(weights, column["requests"]))
        samples = _effective(weights / per_draw, float((squares / per_draw).sum()))
        by_block: FloatArray = np.bincount(self.block, weights=weights).astype(np.float64)
        problem = ""
        if robust is None:
            problem = "no recorded decision is one it would have made"
        elif support.high < _LEAST_SUPPORT:
            problem = f"only {support.value:.0%} of its decisions had a chance to be recorded"
        elif samples < _FEWEST_SAMPLES:
            problem = f"the matching decisions are worth {samples:.0f} samples: record for longer"
        elif _effective(by_block, float(by_block @ by_block)) < _FEWEST_BLOCKS:
            problem = "a few unlikely decisions carry the estimate: record with more even odds of K"
        return PolicyValue(
            policy=policy,
            doubly_robust=robust,
            gain=gain,
            support=support,
            effective_samples=samples,
            wants_deeper=wants_deeper,
            problem=problem,
        )

    def _interval(self, estimated: Linearised) -> Estimate:
        return estimated.interval(self.block, self.confidence)


def _effective(weights: FloatArray, squares: float) -> float:
    return float(weights.sum()) ** 2 / squares if squares else 0.0
