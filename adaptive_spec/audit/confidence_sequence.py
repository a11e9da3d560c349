"""A mean with an interval that holds at all times at once.

An operator looks at the interval whenever he likes, and stops when he likes. An ordinary confidence
interval holds at one time only; a confidence sequence holds at all of them with the stated
probability. This is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and
Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences" (Annals of
Statistics 2024, arXiv 2103.06476): after t observations with standard deviation s, mean +-

    s sqrt((t r + 1) / (t^2 r) (ln(t r + 1) - 2 ln alpha)),

with r = (-2 ln alpha + ln(1 - 2 ln alpha)) / t* narrowest at t = t*. With weights, t is the
effective number of observations, (sum w)^2 / sum w^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

LEAST = 12
"""Observations without which there is no interval."""
_NARROWEST = 100.0
"""t*: observations at which the interval is to be narrowest."""
_PRIOR_OBSERVATIONS, _PRIOR_DEVIATION = 2.0, 0.05
"""A few observations could agree by chance: their variance counts together with these."""
_FREEDOM = 6.0
"""Observations that the estimated variance is short of, so that skewed ones are covered, too."""


class Interval(NamedTuple):
    """A mean and its bounds."""

    mean: float
    low: float
    high: float


class Sequence:
    """Sums of weighted observations; those of several servers add up."""

    __slots__ = ("sums",)

    def __init__(self, sums: Iterable[float] = (0.0,) * 6) -> None:
        self.sums = list(sums)
        """Number, w, w^2, w x, w^2 x, w^2 x^2."""

    @property
    def count(self) -> int:
        """Number of observations."""
        return round(self.sums[0])

    def add(self, value: float, weight: float) -> None:
        """Add an observation."""
        square = weight * weight
        new = (1.0, weight, square, weight * value, square * value, square * value * value)
        self.sums = [a + b for a, b in zip(self.sums, new, strict=True)]

    def add_all(self, other: Sequence) -> None:
        """Add the observations of another sequence."""
        self.sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]

    def interval(self, alpha: float) -> Interval | None:
        """Return mean and bounds that miss the truth at some time with probability `alpha`.

        None with fewer than `LEAST` observations.
        """
        number, w, w2, wx, w2x, w2xx = self.sums
        if number < LEAST:
            return None
        mean, t = wx / w, w * w / w2
        variance = max(w2xx - 2.0 * mean * w2x + mean * mean * w2, 0.0) / w2
        prior = _PRIOR_OBSERVATIONS * _PRIOR_DEVIATION**2
        variance = (t * variance + prior) / max(t - _FREEDOM, 1.0)
        log_alpha = math.log(alpha)
        tr = t * (math.log(1.0 - 2.0 * log_alpha) - 2.0 * log_alpha) / _NARROWEST
        half = math.sqrt(variance * (tr + 1.0) / (t * tr) * (math.log(tr + 1.0) - 2.0 * log_alpha))
        return Interval(mean, mean - half, mean + half)
