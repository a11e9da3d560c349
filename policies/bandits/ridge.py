"""Several ridge regressions on the same features, with discounted evidence.

A <- gamma A + (1 - gamma) lambda I + X'X,  b <- gamma b + X'y,  theta = A^-1 b, for each of M
regressions (arms or positions); lambda I is not discounted (discounted linear bandits: Russac,
Vernade, Cappé, arXiv 1909.09146).
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import BoolArray, FloatArray


class RidgeRegressions:
    """M regressions with d coefficients.

    Args:
        count: M.
        dimensions: d.
        ridge: lambda.
        discount: gamma, discount of a regression's evidence whenever it learns.
        guess: [d] prior coefficients.
    """

    def __init__(
        self, count: int, dimensions: int, *, ridge: float, discount: float, guess: FloatArray
    ) -> None:
        self._prior: FloatArray = ridge * np.eye(dimensions, dtype=np.float64)
        self._prior_moment = self._prior @ guess
        self._discount = discount
        self.gram: FloatArray = np.tile(self._prior, (count, 1, 1))
        self.moment: FloatArray = np.tile(self._prior_moment, (count, 1))
        self.solve()

    def solve(self) -> None:
        """Solve for coefficients [M, d] and inverses [M, d, d] from the sums."""
        self.inverse: FloatArray = np.asarray(np.linalg.inv(self.gram), dtype=np.float64)
        self.coefficients: FloatArray = np.einsum("mde,me->md", self.inverse, self.moment)

    def learn(self, features: FloatArray, target: FloatArray, seen: BoolArray) -> None:
        """Learn from one step.

        Args:
            features: [B, d].
            target: [M, B].
            seen: [M, B] whether the target is known.
        """
        learns = seen.any(axis=1)
        if not learns.any():
            return
        weighted = seen[:, :, None] * features
        fresh = weighted.transpose(0, 2, 1) @ features
        moment = np.where(seen, target, 0.0) @ features
        fade = np.where(learns, self._discount, 1.0)
        self.gram = fade[:, None, None] * self.gram + fresh
        self.gram += (1.0 - fade)[:, None, None] * self._prior
        self.moment = fade[:, None] * self.moment + moment
        self.moment += (1.0 - fade)[:, None] * self._prior_moment
        self.solve()

    def mean(self, features: FloatArray) -> FloatArray:
        """Return [M, B] predictions at features [B, d]."""
        predicted: FloatArray = self.coefficients @ features.T
        return predicted

    def deviation(self, features: FloatArray) -> FloatArray:
        """Return [M, B] deviations sqrt(x' A^-1 x)."""
        spread = np.sum((features @ self.inverse) * features, axis=2)
        deviation: FloatArray = np.sqrt(np.maximum(spread, 0.0))
        return deviation
