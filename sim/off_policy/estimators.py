"""Tokens per second of a policy that did not run: IPS, SNIPS and doubly robust.

With y_i the tokens that request i emitted, p_i the probability of the K_i that ran and K'_i what
the policy would have run, a request's weight is rho_i = 1[K_i = K'_i] / p_i.

    IPS     sum rho_i y_i                                         (Horvitz, Thompson, 1952)
    SNIPS   M sum rho_i y_i / sum rho_i,  M requests and steps    (Swaminathan, Joachims, 2015)
    DR      sum m_i(K'_i) + rho_i (y_i - m_i(K_i))                (Dudík, Langford, Li, 1103.4601)

with m the predicted tokens; each is divided by an estimate of the seconds. Where one K was drawn
for the batch, its weight applies to the seconds too (for DR as errors of predicted seconds). Where
requests were drawn one by one, no weight of a request can say what the step's time would have been:
then the seconds are the measured ones plus the predicted difference. A ratio of two means is
linearised for its interval (delta method).

Prompts are charged by the emitted token, at what they took per emitted token in the record: in the
long run requests, and with them prompts, come as fast as tokens are emitted, not as steps pass.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.sim.off_policy.draws import DrawKind
from adaptive_spec.sim.off_policy.intervals import Linearised, ratio
from adaptive_spec.sim.off_policy.step_time import StepTimeRegression
from adaptive_spec.step import FloatArray, IntArray


class StepTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of the estimators from one recorded step, summed over its requests.

    Attributes:
        requests: decoding requests.
        tokens, seconds, prefill_tokens: what ran.
        matched: requests whose K is the policy's.
        matched_tokens: tokens they emitted.
        weights, squares: sums of rho and of rho^2.
        weighted_tokens: sum of rho y.
        model_tokens, model_seconds: predicted for the policy.
        weighted_errors: sum of rho (y - predicted tokens of what ran).
        second_error: measured less predicted seconds of what ran.
    """

    requests: float
    tokens: float
    seconds: float
    prefill_tokens: float
    matched: float
    matched_tokens: float
    weights: float
    squares: float
    weighted_tokens: float
    model_tokens: float
    model_seconds: float
    weighted_errors: float
    second_error: float


class Columns:
    """The terms of all steps, as arrays [steps].

    Args:
        terms: one per step.
        shifts: [steps, F] how the features of step time would have differed: with the policy's K
            and depth (request), or its depth (batch).
        time: the fitted step times.

    Without the time of prompts. The column `other_seconds` is the measured seconds plus the
    predicted difference.
    """

    def __init__(
        self, terms: list[StepTerms], shifts: FloatArray, time: StepTimeRegression
    ) -> None:
        table = np.array([msgspec.structs.astuple(term) for term in terms], dtype=np.float64)
        self._columns = dict(zip(StepTerms.__struct_fields__, table.T, strict=True))
        prompts = time.prompt_seconds(self["prefill_tokens"])
        for name in ("seconds", "model_seconds"):
            self._columns[name] = self[name] - prompts
        self._columns["other_seconds"] = self["seconds"] + shifts @ time.coefficients()
        self.prompts = ratio(prompts, self["tokens"])
        """Seconds of prompts per emitted token."""
        self._shifts = shifts
        self._covariance = time.covariance()

    def shift_variance(self, weight: FloatArray) -> float:
        """Variance of the sum of predicted differences, each step's times a weight [steps]."""
        total = weight @ self._shifts
        return max(float(total @ self._covariance @ total), 0.0)

    def __getitem__(self, name: str) -> FloatArray:
        column: FloatArray = self._columns[name]
        return column


class Estimates(NamedTuple):
    """Tokens per second by each estimator; None where nothing matched."""

    logged: Linearised
    """Tokens per second of the policy that ran, linearised in the same way."""

    ips: Linearised | None
    snips: Linearised | None
    doubly_robust: Linearised | None
    model: Linearised
    unweighted: Linearised | None


def estimate(columns: Columns, kind: DrawKind) -> Estimates:
    """All estimators on the same steps."""

    def rate(above: FloatArray, below: FloatArray, unsure: float = 0.0) -> Linearised:
        return ratio(above, below, unsure).with_added(columns.prompts)

    logged = rate(columns["tokens"], columns["seconds"])
    model = rate(columns["model_tokens"], columns["model_seconds"])
    if not columns["matched"].any():
        return Estimates(logged, None, None, None, model, None)
    corrected = columns["model_tokens"] + columns["weighted_errors"]
    seconds = columns["other_seconds"]
    unsure = columns.shift_variance(np.ones(len(seconds)))
    if kind is DrawKind.REQUEST:
        snips = _normalised(columns, "weighted_tokens", "weights", unsure)
        plain = _normalised(columns, "matched_tokens", "matched", unsure)
        return Estimates(
            logged=logged,
            ips=rate(columns["weighted_tokens"], seconds, unsure),
            snips=snips.with_added(columns.prompts),
            doubly_robust=rate(corrected, seconds, unsure),
            model=model,
            unweighted=plain.with_added(columns.prompts),
        )
    weight = columns["weights"] / columns["requests"]
    matched = columns["matched"] / columns["requests"]
    # Normalising by the weights would cancel in the ratio: IPS is self-normalised already.
    ips = rate(columns["weighted_tokens"], weight * seconds, columns.shift_variance(weight))
    return Estimates(
        logged=logged,
        ips=ips,
        snips=ips,
        doubly_robust=rate(
            corrected, columns["model_seconds"] + weight * columns["second_error"], unsure
        ),
        model=model,
        unweighted=rate(
            columns["matched_tokens"], matched * seconds, columns.shift_variance(matched)
        ),
    )


def mean_weight(columns: Columns) -> Linearised:
    """Mean of the weights; 1 if the log could have run all that the policy would.

    E[rho] is the share of the policy's decisions that had a chance, whatever their probabilities.
    """
    return ratio(columns["weights"], columns["requests"])


def effective_samples(columns: Columns, kind: DrawKind) -> float:
    """(sum of weights)^2 / sum of squares (Kish): requests, or steps where one K was drawn."""
    weights, squares = columns["weights"], columns["squares"]
    if kind is DrawKind.BATCH:
        weights, squares = weights / columns["requests"], squares / columns["requests"]
    total = float(squares.sum())
    return float(weights.sum()) ** 2 / total if total else 0.0


def effective_blocks(columns: Columns, block: IntArray) -> float:
    """Effective number of blocks by weight: few if a handful of draws carries the estimate."""
    weights = np.bincount(block, weights=columns["weights"])
    total = float(weights @ weights)
    return float(weights.sum()) ** 2 / total if total else 0.0


def _normalised(columns: Columns, tokens: str, weights: str, unsure: float) -> Linearised:
    """(tokens / weights) * requests / seconds, each a sum over steps."""
    total = float(columns["other_seconds"].sum())
    value = float(columns[tokens].sum() * columns["requests"].sum())
    value /= float(columns[weights].sum()) * total
    influence = np.zeros(len(columns[tokens]))
    for name, sign in ((tokens, 1.0), ("requests", 1.0), (weights, -1.0), ("other_seconds", -1.0)):
        influence += sign * value * columns[name] / float(columns[name].sum())
    return Linearised(value, influence, value**2 * unsure / total**2)
