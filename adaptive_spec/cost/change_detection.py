"""Change detection: do steps take longer, or shorter, than those of their kind used to?

Two-sided CUSUM (Page, Biometrika 41, 1954) on log(seconds / expected) in units of the spread of
steps of this kind, cut off at `_CUT`: a single slow step adds little, eight in a row are a change.
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


class StepTimeWatch:
    """Watches step times against what they were."""

    def __init__(self) -> None:
        self._up = self._down = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)

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
        if max(self._up, self._down) < _LIMIT:
            return None
        factor = math.exp(median(self._recent))
        self._up = self._down = 0.0
        self._recent.clear()
        return factor
