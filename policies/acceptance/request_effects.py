"""Effects u_i of requests: how much more or less a request's drafts are accepted than others'.

The average of a request forgets within about four steps. Requests change that fast (a passage that
the drafter copies, then one that it cannot), and an average over many steps was worth nothing
besides. A request changes unobserved, too: in steps that verify nothing for it, u_i returns to the
mean of all requests. Without that, nobody would try a request again that was bad for some steps.
"""

from __future__ import annotations

import math

from adaptive_spec.per_request import floats
from adaptive_spec.step import FloatArray, IntArray

DISCOUNT = 0.75
"""Share of a request's evidence that a step leaves."""
_FIRST_VARIANCE = 0.3
"""Variance of u_i between requests before anything is seen, in logits."""
_VARIANCE_RANGE = (0.02, 3.0)
_FIRST_CURVATURE, _CURVATURE_LIMIT = 1.0, 100.0
"""Evidence behind the first variance, and at which its memory is capped; a standard deviation of
its logarithm is one over the root of that."""


class RequestEffects:
    """u_i by request slot, the evidence behind it, and how much requests differ.

    Attributes:
        prior_variance: of u_i between requests, in logits.
    """

    def __init__(self) -> None:
        self.prior_variance = _FIRST_VARIANCE
        self._curvature = _FIRST_CURVATURE
        self.effect, self.evidence = floats(0.0), floats(0.0)
        """u_i by slot, and the Fisher information behind it."""

    def of(self, slots: IntArray) -> FloatArray:
        """u_i [B]."""
        return self.effect[slots]

    def information(self, slots: IntArray) -> FloatArray:
        """Fisher information [B] behind u_i."""
        return self.evidence[slots]

    def unknown(self, slots: IntArray) -> FloatArray:
        """Share [B] of the prior variance of u_i that is left."""
        share: FloatArray = 1.0 / (1.0 + self.prior_variance * self.evidence[slots])
        return share

    def impute(self, slots: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums [B] over a request's drafts whose outcome was only estimated."""
        total = self.evidence[slots] + information
        effect = self.effect[slots] + residual / (1.0 / self.prior_variance + total)
        self.effect[slots], self.evidence[slots] = effect, total

    def learn_variance(self, slope: float, curvature: float) -> None:
        """Move the prior variance to where the effects would have predicted a step's outcomes best.

        A Newton step on the error of one-step predictions (recursive prediction errors: Ljung and
        Söderström, "Theory and practice of recursive identification", chapter 3).

        Args:
            slope: of the outcomes' log-likelihood in the logarithm of the variance.
            curvature: of the same, expected; at least 0.
        """
        self._curvature = min(self._curvature, _CURVATURE_LIMIT) + curvature
        step = slope / (self._curvature + abs(slope))
        low, high = _VARIANCE_RANGE
        self.prior_variance = min(max(self.prior_variance * math.exp(step), low), high)

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of ended requests."""
        self.effect.reset(slots)
        self.evidence.reset(slots)
