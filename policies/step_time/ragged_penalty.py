"""Extra verify time of steps whose K differ between requests, learned from step times.

The penalty p is what such a step takes longer than one of equal K with as many drafts:

    p = mean(T / T^ - 1 | K differ) - mean(T / T^ - 1 | K equal)

T^ is the predicted verify time of a step of equal K, so that what is wrong with the prediction
cancels out. Both means forget, and a prior counts as some steps. With varlen decode graphs the
true value is small (0 to 3 percent), as both kinds of steps replay the same graphs.
"""

from __future__ import annotations

_MEMORY = 64
"""Steps of each kind that the means remember."""
_PRIOR_STEPS = 16
"""Weight of the prior, in steps of the rarer kind."""
_LARGEST_RESIDUAL = 0.5
"""Bound of one step's T / T^ - 1, so that a stalled step moves little."""
_GRID = 200.0
"""Steps of the penalty's value per unit (0.5 percent each): below, a difference is noise."""


class RaggedPenalty:
    """Learns p. A prior of 0 means that the engine has no such penalty, and p stays 0.

    Args:
        prior: p before anything is measured.
    """

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._means = [0.0, 0.0]
        self._counts = [0, 0]

    @property
    def value(self) -> float:
        """p >= 0, rounded to half a percent."""
        if not self._prior:
            return 0.0
        known = min(self._counts)
        measured = self._means[True] - self._means[False]
        p = (known * measured + _PRIOR_STEPS * self._prior) / (known + _PRIOR_STEPS)
        return max(round(p * _GRID), 0) / _GRID

    def observe(self, seconds: float, expected: float, *, ragged: bool) -> None:
        """Take up the verify time of a step without prompts.

        Args:
            seconds: measured.
            expected: predicted for a step of equal K (> 0).
            ragged: K differed between the requests.
        """
        if not self._prior:
            return
        residual = seconds / expected - 1.0
        residual = max(-_LARGEST_RESIDUAL, min(residual, _LARGEST_RESIDUAL))
        self._counts[ragged] += 1
        steps = min(self._counts[ragged], _MEMORY)
        self._means[ragged] += (residual - self._means[ragged]) / steps
