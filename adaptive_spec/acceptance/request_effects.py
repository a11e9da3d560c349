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
"""Of a request's evidence, per step."""
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
        self._effect, self._information = floats(0.0), floats(0.0)

    def of(self, slots: IntArray) -> FloatArray:
        """u_i [B]."""
        return self._effect[slots]

    def information(self, slots: IntArray) -> FloatArray:
        """Fisher information [B] behind u_i."""
        return self._information[slots]

    def unknown(self, slots: IntArray) -> FloatArray:
        """Share [B] of the prior variance of u_i that is left."""
        share: FloatArray = 1.0 / (1.0 + self.prior_variance * self._information[slots])
        return share

    def put(self, slots: IntArray, effect: FloatArray, information: FloatArray) -> None:
        """Replace u_i [B] and its information [B]."""
        self._effect[slots] = effect
        self._information[slots] = information

    def rest(self, slots: IntArray) -> None:
        """Count a step that observed nothing of these requests [R]."""
        information = self._information[slots] * DISCOUNT
        forgotten = (1.0 - DISCOUNT) / (1.0 + self.prior_variance * information)
        self.put(slots, self._effect[slots] * (1.0 - forgotten), information)

    def impute(self, slots: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums [B] over a request's drafts whose outcome was only estimated."""
        total = self._information[slots] + information
        effect = self._effect[slots] + residual / (1.0 / self.prior_variance + total)
        self.put(slots, effect, total)

    def forget(self, slots: IntArray) -> None:
        """Learn from ended requests how much requests differ, then clear their rows."""
        information = self._information[slots]
        known = information > _LEAST_INFORMATION
        if known.any():
            # EM step for the variance of u: E[u^2] = estimate^2 + posterior variance.
            posterior = 1.0 / (1.0 / self.prior_variance + information[known])
            second_moment = float(np.mean(self._effect[slots][known] ** 2 + posterior))
            ended = int(np.count_nonzero(known))
            self._ended += ended
            # An average over the first requests, a slow mean afterwards.
            rate = min(max(_VARIANCE_RATE, 1.0 / (self._ended + 10)) * ended, 0.5)
            self.prior_variance += rate * (second_moment - self.prior_variance)
            low, high = _VARIANCE_RANGE
            self.prior_variance = min(max(self.prior_variance, low), high)
        self._effect.reset(slots)
        self._information.reset(slots)
