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

from adaptive_spec.sim.off_policy.intervals import Linearised, ratio
from adaptive_spec.sim.off_policy.logged_steps import DrawKind
from adaptive_spec.sim.off_policy.step_model import StepTimeRegression
from adaptive_spec.step import FloatArray, IntArray


class StepTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of the estimate from one recorded step, summed over its requests.

    Attributes:
        requests: decoding requests.
        tokens, seconds, prefill_tokens: what ran.
        matched: requests whose K is the policy's.
        weights, squares: sums of rho and of rho^2.
        model_tokens, model_seconds: predicted for the policy.
        weighted_errors: sum of rho (y - predicted tokens of what ran).
        second_error: measured less predicted seconds of what ran.
    """

    requests: float
    tokens: float
    seconds: float
    prefill_tokens: float
    matched: float
    weights: float
    squares: float
    model_tokens: float
    model_seconds: float
    weighted_errors: float
    second_error: float


class Estimates(NamedTuple):
    """Tokens per second of one policy on the recorded steps.

    Attributes:
        logged: of the policy that ran, linearised in the same way.
        doubly_robust: None where no recorded decision is the policy's.
        model: predictions without any correction.
        support: mean weight; 1 if the log could have run all that the policy would.
        samples: effective number of weighted requests, or of steps where one K was drawn (Kish).
        by_block: effective number of blocks by weight; few if a few draws carry the estimate.
        matched: share of requests and steps that ran the policy's K.
    """

    logged: Linearised
    doubly_robust: Linearised | None
    model: Linearised
    support: Linearised
    samples: float
    by_block: float
    matched: float


def estimate(
    terms: list[StepTerms],
    shifts: FloatArray,
    time: StepTimeRegression,
    kind: DrawKind,
    block: IntArray,
) -> Estimates:
    """The estimates of one policy.

    Args:
        terms: one per step.
        shifts: [steps, F] how the features of step time would have differed: with the policy's K
            and depth (request), or its depth (batch).
        time: the fitted step times.
        kind: what was drawn.
        block: [steps] number of each step's block.
    """
    table = np.array([msgspec.structs.astuple(term) for term in terms], dtype=np.float64)
    column: dict[str, FloatArray] = dict(zip(StepTerms.__struct_fields__, table.T, strict=True))
    prompts = time.prompt_seconds(column["prefill_tokens"])
    prompts_by_token = ratio(prompts, column["tokens"])
    measured, predicted = column["seconds"] - prompts, column["model_seconds"] - prompts

    def rate(tokens: FloatArray, seconds: FloatArray, unsure: float = 0.0) -> Linearised:
        return ratio(tokens, seconds, unsure).with_added(prompts_by_token)

    robust = None
    weights, squares = column["weights"], column["squares"]
    per_draw = 1.0 if kind is DrawKind.REQUEST else column["requests"]
    if column["matched"].any():
        if kind is DrawKind.REQUEST:
            seconds = measured + shifts @ time.coefficients()
        else:
            seconds = predicted + weights / column["requests"] * column["second_error"]
        total = shifts.sum(axis=0)
        unsure = max(float(total @ time.covariance() @ total), 0.0)
        robust = rate(column["model_tokens"] + column["weighted_errors"], seconds, unsure)
    by_block: FloatArray = np.bincount(block, weights=weights).astype(np.float64)
    return Estimates(
        logged=rate(column["tokens"], measured),
        doubly_robust=robust,
        model=rate(column["model_tokens"], predicted),
        support=ratio(weights, column["requests"]),
        samples=_effective(weights / per_draw, float((squares / per_draw).sum())),
        by_block=_effective(by_block, float(by_block @ by_block)),
        matched=float(column["matched"].sum() / column["requests"].sum()),
    )


def _effective(weights: FloatArray, squares: float) -> float:
    return float(weights.sum()) ** 2 / squares if squares else 0.0
