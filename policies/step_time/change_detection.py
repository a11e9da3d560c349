"""Change detection: do steps take longer, or shorter, than those of their kind used to?

Two-sided CUSUM (Page, Biometrika 41, 1954) on log(seconds / expected) in units of the spread of
steps of this kind, cut off at `_CUT`: a single slow step adds little, eight in a row are a change.

A change of less than a fifth is noticed by a slow average of the same logarithm. It may hide a
larger one: where the fixed time of a step falls to nothing, a full batch hardly gets any faster,
and one without drafts by a quarter. The average has to leave the range over which it wanders
anyway.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

_CUT = 3.0
"""Units of spread that a step counts for at most."""
_SLACK = 1.0
"""Units that steps may be off for good."""
_LIMIT = 8.0 * (_CUT - _SLACK)
_LEAST_SPREAD = 0.2
"""Relative; steps that are off by less for good are no change worth timing everything anew. With
.05, levels that never rest cost 1.2 % of throughput more: `benchmarks/changes.py --parts
wandering`, mean of 27 cells."""
_RECENT = 8
_DRIFT_RATE, _WANDER_RATE = 1.0 / 64.0, 1.0 / 512.0
_LEAST_DRIFT = 0.1
_DRIFT_OVER_WANDER = 2.0
_MOST_RESIDUAL = 0.5
_LEAST_MOVE, _KEPT = 0.02, 0.98
"""Relative; what runs moves by less, within some 50 steps, because of noise."""
_MISFIT, _PATIENCE = 0.1, 64
"""Relative error of a fit, and steps in a row with it, from where what was timed is out of date."""


class StepTimeWatch:
    """Watches step times against what they were."""

    def __init__(self) -> None:
        self._up = self._down = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._drift = self._wander = 0.0
        self._moved = self._level = 0.0

    @property
    def calm(self) -> bool:
        """No change is suspected."""
        return not (self._up or self._down)

    def observe(self, seconds: float, expected: float, spread: float) -> float | None:
        """Take up a step; the factor by which steps have changed, if they have, else None.

        Args:
            seconds: that it took.
            expected: what such steps took before, in seconds.
            spread: relative, of such steps.
        """
        residual = math.log(seconds / expected)
        unit = max(spread, _LEAST_SPREAD)
        score = min(max(residual / unit, -_CUT), _CUT)
        self._up = max(0.0, self._up + score - _SLACK)
        self._down = max(0.0, self._down - score - _SLACK)
        self._recent.append(residual)
        if max(self._up, self._down) < _LIMIT and not self._drifted(residual):
            return None
        factor = math.exp(median(self._recent))
        self._up = self._down = self._drift = 0.0
        self._moved = self._level = 0.0
        self._recent.clear()
        return factor

    def follow(self, moved: float) -> float:
        """Return the factor by which steps of other kinds have changed along with those that run.

        They get faster together, and slower again, but no slower than they were. A K that is not
        run would keep the times of a world that is gone otherwise, and the first that is tried for
        another reason would seem to be the best. What gets slower than ever may do so because of
        its K: the others are tried sooner if they stay as they are.

        Args:
            moved: logarithm by which the last step has moved the mean of its kind.
        """
        self._moved = _KEPT * self._moved + moved
        if self._level > 0.0:  # of those that have not followed
            self._level *= _KEPT
        if abs(self._moved) < _LEAST_MOVE:
            return 1.0
        before = min(self._level, 0.0)
        self._level += self._moved
        self._moved = 0.0
        return math.exp(min(self._level, 0.0) - before)

    def _drifted(self, residual: float) -> bool:
        bounded = min(max(residual, -_MOST_RESIDUAL), _MOST_RESIDUAL)
        self._drift += _DRIFT_RATE * (bounded - self._drift)
        square = self._drift * self._drift
        self._wander += _WANDER_RATE * (square - self._wander)
        least = _LEAST_DRIFT * _LEAST_DRIFT
        return square > max(least, _DRIFT_OVER_WANDER * _DRIFT_OVER_WANDER * self._wander)


class MisfitWatch:
    """Notices that the steps that run do not fit what else was timed.

    Times of another load or K may be out of date though no change was noticed, because load or K
    moved at the same time.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._patience = _PATIENCE

    def observe(self, error: float) -> bool:
        """Take up the relative error of a fit; whether it has been large for long.

        Each time that it has, the next time takes twice as many steps, as times may fit no model.
        """
        self._steps = self._steps + 1 if abs(error) > _MISFIT else 0
        if self._steps < self._patience:
            return False
        self._steps = 0
        self._patience *= 2
        return True
