"""Effects u_i of requests: how much more or less a request's drafts are accepted than others'.

The average of a request forgets within about four steps. Requests change that fast (a passage that
the drafter copies, then one that it cannot), and an average over many steps was worth nothing
besides. A request changes unobserved, too: in steps that verify nothing for it, u_i returns to the
mean of all requests. Without that, nobody would try a request again that was bad for some steps.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.step import FloatArray, IntArray

DISCOUNT = 0.75
"""Share of a request's evidence that a step leaves."""
_FIRST_VARIANCE = 0.3
"""Variance of u_i between requests before any has ended, in logits."""
_VARIANCE_RANGE = (0.05, 3.0)
_VARIANCE_RATE = 0.02
_LEAST_INFORMATION = 0.32
"""Fisher information from which a request tells something about the variance; about a quarter of
what a request can gather with this discount."""


class RequestEffects:
    """u_i by request slot, the evidence behind it, and how much requests differ.

    Attributes:
        prior_variance: of u_i between requests, in logits.
    """

    def __init__(self) -> None:
        self.prior_variance = _FIRST_VARIANCE
        self._ended = 0
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

    def forget(self, slots: IntArray) -> None:
        """Learn from ended requests how much requests differ, then clear their rows."""
        information = self.evidence[slots]
        known = information > _LEAST_INFORMATION
        if known.any():
            # EM step for the variance of u: E[u^2] = estimate^2 + posterior variance.
            posterior = 1.0 / (1.0 / self.prior_variance + information[known])
            second_moment = float(np.mean(self.effect[slots][known] ** 2 + posterior))
            ended = int(np.count_nonzero(known))
            self._ended += ended
            # An average over the first requests, a slow mean afterwards.
            rate = min(max(_VARIANCE_RATE, 1.0 / (self._ended + 10)) * ended, 0.5)
            self.prior_variance += rate * (second_moment - self.prior_variance)
            low, high = _VARIANCE_RANGE
            self.prior_variance = min(max(self.prior_variance, low), high)
        self.effect.reset(slots)
        self.evidence.reset(slots)
