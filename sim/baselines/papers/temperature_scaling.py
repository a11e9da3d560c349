"""Sequential temperature scaling, online: a confidence temperature per draft position.

    a_j = sigmoid(x_j / T_j),    x_j = log-odds of the confidence at position j

Position by position, 16 bins of x hold discounted counts of judged drafts (accepted ones, and the
first rejected one), their accepted ones and their mean x. T_j is the temperature of a logarithmic
grid of 49 with the least expected calibration error over the bins. With little data, log T_j
shrinks towards the fit of all positions together, with weight n / (n + 64).

Source: DSpark, arXiv 2607.05147 (offline, left to right), in the online form of vLLM's branch file
dspark/online_sts.py: bins, decay 0.999 per step, grid and shrinkage. The range of the grid (0.1 to
10) is SGLang's (benchmark/dspark_sts_fit.py, which fits offline); the refit every 100 steps is
ours.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.sim.baselines.parts.drafts import observed, sigmoid
from adaptive_spec.step import FloatArray, IntArray

_BINS = 16
_WIDEST = 8.0
"""Inner edge of the outermost bins (log-odds)."""
_DECAY = 0.999
_SHRINKAGE = 64.0
_REFIT_STEPS = 100
_GRID: FloatArray = np.geomspace(0.1, 10.0, 49)


class TemperatureScaling:
    """Temperatures [Kmax], initially 1.

    Args:
        positions: Kmax.
    """

    def __init__(self, positions: int) -> None:
        self.temperature: FloatArray = np.ones(positions)
        self._count: FloatArray = np.zeros((positions, _BINS))
        self._taken: FloatArray = np.zeros((positions, _BINS))
        self._sum: FloatArray = np.zeros((positions, _BINS))
        self._steps = 0

    def calibrated(self, log_odds: FloatArray) -> FloatArray:
        """Return [B, Kmax] acceptance; nan stays nan."""
        return sigmoid(log_odds / self.temperature)

    def learn(self, log_odds: FloatArray, verified: IntArray, accepted: IntArray) -> None:
        """Add a step's judged drafts: log-odds [B, Kmax], nan where unknown; the others [B]."""
        positions = len(self.temperature)
        seen, taken = observed(verified, accepted, positions)
        seen &= ~np.isnan(log_odds)
        edges = np.linspace(-_WIDEST, _WIDEST, _BINS - 1)
        place = np.searchsorted(edges, log_odds) + np.arange(positions) * _BINS
        place, shown, hit = place[seen], log_odds[seen], taken[seen]
        for sums, weights in (
            (self._count, np.ones(len(place))),
            (self._taken, hit.astype(np.float64)),
            (self._sum, shown),
        ):
            sums *= _DECAY
            sums += np.bincount(place, weights, positions * _BINS).reshape(positions, _BINS)
        self._steps += 1
        if self._steps >= _REFIT_STEPS:
            self._steps = 0
            self._refit()

    def _refit(self) -> None:
        pooled = _best(self._count.sum(axis=0), self._taken.sum(axis=0), self._sum.sum(axis=0))
        for position in range(len(self.temperature)):
            seen = float(self._count[position].sum())
            own = _best(self._count[position], self._taken[position], self._sum[position])
            weight = seen / (seen + _SHRINKAGE)
            mixed = weight * math.log(own) + (1.0 - weight) * math.log(pooled)
            self.temperature[position] = math.exp(mixed)


def _best(count: FloatArray, taken: FloatArray, total: FloatArray) -> float:
    """Return the grid's temperature with the least calibration error over bins; 1 without data."""
    if count.sum() <= 0.0:
        return 1.0
    mean = total / np.maximum(count, 1e-12)
    expected = sigmoid(mean / _GRID[:, None])
    error = np.abs(count * expected - taken).sum(axis=1)
    return float(_GRID[np.argmin(error)])
