"""Effects u_i of requests, averaged over many steps or over few, whichever predicts better.

How fast a request changes isn't known beforehand. Two averages are kept of each request: a slow
one, with the discount it is given, and a quick one that forgets within about four steps. One leads:
plans are made from it. The other follows. Both are scored on the same outcomes by their squared
residuals, all requests together (a proper score: Brier, Monthly Weather Review 78, 1950). The slow
one leads until the sum of the differences is four of its standard errors in favour of the quick
one, and again as soon as the sum is in its own favour.

Whoever changes within steps does so unobserved, too: the quick average returns to the mean of all
requests in steps that verify nothing for a request. Without that, one that was bad for some steps
would never be tried again. The slow one is only discounted when something is observed.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.acceptance.follow_kernel import follow
from adaptive_spec.step import FloatArray, IntArray

_PRIOR_VARIANCE_RANGE = (0.05, 3.0)
_VARIANCE_RATE = 0.02
_QUICK_DISCOUNT = 0.75
_STANDARD_ERRORS = 4.0
_SCORE_STEPS = 1000.0
"""How long scores are remembered."""


class EffectAverage:
    """u_i by slot, its evidence, and how much requests differ.

    Args:
        discount: of a request's own evidence, per step.
        prior_variance: of u_i between requests, in logits.
    """

    def __init__(self, discount: float, prior_variance: float) -> None:
        self.discount = discount
        self.prior_variance = prior_variance
        # What a request can gather with this discount is worth comparing with less.
        self._known_from = min(1.0, 0.08 / (1.0 - discount)) if discount < 1.0 else 1.0
        self._ended = 0
        self.effect: FloatArray = np.zeros(64)
        self.information: FloatArray = np.zeros(64)

    def of(self, slots: IntArray) -> FloatArray:
        """u_i [B]; makes room for slots not seen before."""
        try:
            return self.effect[slots]
        except IndexError:
            extra = np.zeros(max(len(self.effect), int(slots.max()) + 1))
            self.effect = np.concatenate([self.effect, extra])
            self.information = np.concatenate([self.information, extra])
            return self.effect[slots]

    def rest(self, slots: IntArray) -> None:
        """A step has passed that observed nothing of these requests [R]."""
        information = self.information[slots] * self.discount
        forgotten = (1.0 - self.discount) / (1.0 + self.prior_variance * information)
        self.effect[slots] *= 1.0 - forgotten
        self.information[slots] = information

    def forget(self, slots: IntArray) -> None:
        """Requests have ended: learn how much requests differ, then clear their rows."""
        slots = slots[slots < len(self.effect)]
        information = self.information[slots]
        known = information > self._known_from
        if known.any():
            # EM step for the variance of u: E[u^2] = estimate^2 + posterior variance.
            posterior = 1.0 / (1.0 / self.prior_variance + information[known])
            second_moment = float(np.mean(self.effect[slots][known] ** 2 + posterior))
            ended = int(np.count_nonzero(known))
            self._ended += ended
            # An average over the first requests, a slow mean afterwards.
            rate = min(max(_VARIANCE_RATE, 1.0 / (self._ended + 10)) * ended, 0.5)
            self.prior_variance += rate * (second_moment - self.prior_variance)
            low, high = _PRIOR_VARIANCE_RANGE
            self.prior_variance = min(max(self.prior_variance, low), high)
        self.effect[slots] = 0.0
        self.information[slots] = 0.0

    def widen(self) -> None:
        """Trust the past less."""
        self.information = np.minimum(self.information, 1.0)


class RequestEffects:
    """The two averages, and which of them leads.

    Args:
        discount: of the slow average.
        prior_variance: both start from.
    """

    def __init__(self, discount: float, prior_variance: float) -> None:
        self.slow = EffectAverage(discount, prior_variance)
        self.quick = EffectAverage(min(discount, _QUICK_DISCOUNT), prior_variance)
        self.leading = self.slow
        self._gain = self._spread = 0.0

    def follow(
        self,
        hazard: FloatArray,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        effect: FloatArray,
    ) -> None:
        """Let the other average learn the same step, and see which of them should lead.

        Args:
            hazard: [Kmax, B] as the leading average predicted it.
            slots: [B] rows of the requests.
            verified: [B] K_i.
            accepted: [B] accepted drafts.
            effect: [B] u_i of the leading average, before the step.
        """
        quick_leads = self.leading is self.quick
        other = self.slow if quick_leads else self.quick
        theirs = other.of(slots)
        information = other.information[slots]
        better = follow(
            hazard,
            verified,
            accepted,
            np.exp(theirs - effect),
            theirs,
            information,
            other.prior_variance,
            other.discount,
        )
        other.effect[slots] = theirs
        other.information[slots] = information
        unseen = verified <= 0
        if unseen.any():
            self.quick.rest(slots[unseen])
        self._score(-better if quick_leads else better)

    def _score(self, better: float) -> None:
        """Take up by how much the quick average predicted a step better."""
        kept = 1.0 - 1.0 / _SCORE_STEPS
        self._gain = self._gain * kept + better
        self._spread = self._spread * kept + better * better
        if self._gain < 0.0:
            self.leading = self.slow
        elif self._gain**2 > _STANDARD_ERRORS**2 * self._spread:
            self.leading = self.quick

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        self.slow.forget(slots)
        self.quick.forget(slots)

    def widen(self) -> None:
        """Trust the past less."""
        self.slow.widen()
        self.quick.widen()

    def impute(self, slots: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Sums [B] over a request's drafts whose outcome was only estimated."""
        for average in (self.slow, self.quick):
            effect = average.of(slots)
            total = average.information[slots] + information
            average.effect[slots] = effect + residual / (1.0 / average.prior_variance + total)
            average.information[slots] = total

    def start_from(self, prior_variance: float) -> None:
        """Requests differ by so much, by a saved state."""
        self.slow.prior_variance = self.quick.prior_variance = prior_variance
