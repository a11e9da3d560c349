"""Change detection: has the residual of a prediction moved away from zero?

Two-sided CUSUM (Page, Biometrika 41, 1954) on the residuals of 0/1 labels. A step brings r, the
sum of label minus prediction over its observations, and v, the variance of that sum if the
predictions are right (for labels of probability h: sum of h (1 - h)). For each side and
two sensitivities a,

    S <- max(0, S + a r - (e^a - 1 - a) v)          (and with -r),

and a change is reported when one of them reaches log(4 run_length). Since a residual is at most 1,
exp(a r - (e^a - 1 - a) v) has a mean of at most 1 as long as the predictions are right (Bennett,
Journal of the American Statistical Association 57, 1962), however skewed the labels are; so the
mean number of observations between false alarms is at least `run_length` (Lorden, Annals of
Mathematical Statistics 42, 1971, divided among the four). That holds for independent residuals.
Those of one request are alike from step to step: increments are divided by `inflation`.
"""

from __future__ import annotations

import math

_SENSITIVITIES = (0.5, 1.5)
"""For shifts of some tenths in acceptance, and for drafters that die or revive."""


class ChangeDetector:
    """Watches the residuals of one prediction. A few floating-point operations per step.

    Args:
        run_length: observations between false alarms, on average, at least.
        inflation: factor by which the variance of a sum exceeds that of independent residuals.
        largest_step: observations of one step count as so many at most: a single odd step, however
            large its batch, is no change.

    Raises ValueError for settings without a meaning.
    """

    def __init__(
        self, *, run_length: float = 1e6, inflation: float = 1.5, largest_step: int = 32
    ) -> None:
        if not (run_length > 1.0 and inflation >= 1.0 and largest_step >= 1):
            raise ValueError("run_length > 1, inflation >= 1 and largest_step >= 1 are needed")
        self._limit = math.log(2.0 * len(_SENSITIVITIES) * run_length)
        self._inflation = inflation
        self._largest = float(largest_step)
        self._scales = [(a, math.exp(a) - 1.0 - a) for a in _SENSITIVITIES]
        self._up = [0.0] * len(_SENSITIVITIES)
        self._down = [0.0] * len(_SENSITIVITIES)
        self.changes = 0
        """Changes reported so far."""

    def add_surprise(self, residual: float, variance: float, observations: int) -> bool:
        """Take up a step; True if a change is reported, after which watching starts afresh.

        Args:
            residual: sum of label - prediction over the step's observations.
            variance: sum of h (1 - h) over them.
            observations: how many.
        """
        if observations <= 0 or not (math.isfinite(residual) and math.isfinite(variance)):
            return False
        share = min(1.0 / self._inflation, self._largest / observations)
        highest = 0.0
        for n, (scale, penalty) in enumerate(self._scales):
            drift = penalty * variance
            self._up[n] = max(0.0, self._up[n] + share * (scale * residual - drift))
            self._down[n] = max(0.0, self._down[n] - share * (scale * residual + drift))
            highest = max(highest, self._up[n], self._down[n])
        if highest < self._limit:
            return False
        self.changes += 1
        self.reset()
        return True

    def reset(self) -> None:
        """Start afresh."""
        self._up = [0.0] * len(_SENSITIVITIES)
        self._down = [0.0] * len(_SENSITIVITIES)
