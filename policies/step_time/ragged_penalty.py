"""Extra verify time of steps whose K differ between requests, learned from step times.

The penalty p is what such a step takes longer than one of equal K with as many drafts:

    p = mean(T / T^ - 1 | K differ) - mean(T / T^ - 1 | K equal)

T^ is the predicted verify time of a step of equal K. Both means are of steps with about as many
requests and drafts, so that what is wrong with the prediction there cancels out; between loads it
does not, and where nearly all steps of one load differ in K, its error would pass for a penalty,
which the fit would then leave out of the step times. Loads count by the steps of their rarer kind.
The means forget, and a prior counts as some steps. With varlen decode graphs the true value is
small (0 to 3 percent), as both kinds of steps replay the same graphs.
"""

from __future__ import annotations

_MEMORY = 64
"""Steps of each kind that the means of a load remember."""
_PRIOR_STEPS = 16
"""Weight of the prior, in steps of the rarer kind."""
_LARGEST_RESIDUAL = 0.5
"""Bound of one step's T / T^ - 1, against stalled steps."""
_GRID = 200.0
"""Steps of the penalty's value per unit (0.5 percent each): below, a difference is noise."""


class RaggedPenalty:
    """Learns p. A prior of 0 means that the engine has no such penalty, and p stays 0.

    Args:
        prior: p before anything is measured.
    """

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._loads: dict[tuple[int, int], tuple[list[float], list[int]]] = {}
        """Means and counts by kind of step, for each load."""
        self._value = max(prior, 0.0)

    @property
    def value(self) -> float:
        """p >= 0, rounded to half a percent."""
        return self._value

    def observe(
        self, seconds: float, expected: float, *, ragged: bool, load: tuple[int, int] = (0, 0)
    ) -> None:
        """Take up the verify time of a step without prompts.

        Args:
            seconds: measured.
            expected: predicted for a step of equal K (> 0).
            ragged: K differed between the requests.
            load: number of requests and of drafts, in classes that are compared.
        """
        if not self._prior:
            return
        residual = seconds / expected - 1.0
        residual = max(-_LARGEST_RESIDUAL, min(residual, _LARGEST_RESIDUAL))
        means, counts = self._loads.setdefault(load, ([0.0, 0.0], [0, 0]))
        counts[ragged] += 1
        means[ragged] += (residual - means[ragged]) / min(counts[ragged], _MEMORY)
        if not counts[not ragged]:
            return
        steps, total = float(_PRIOR_STEPS), _PRIOR_STEPS * self._prior
        for (equal, differ), seen in self._loads.values():
            steps += min(seen)
            total += min(seen) * (differ - equal)
        self._value = max(round(total / steps * _GRID), 0) / _GRID
