"""vLLM's online estimator of acceptance from the drafter's confidence.

    p_ij = sigmoid(w x_ij + b_j),    x = logit(max q_ij), within +-40

Each step adds the judged drafts (accepted ones, and the first rejected one) to Newton statistics at
the coefficients of their prediction. Every 100 steps one Newton step with ridge 1e-3 follows, and
the statistics are reset. A negative slope is discarded.

One slope w serves all positions. With n_j judged drafts at position j, the step of w is damped by
n / (n + 50), n = sum n_j, and the step of b_j, given w, by n_j / (n_j + 50). Initial values: w =
0.5, b = -0.2.

Source: `OnlineAcceptanceEstimator` in vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py of
vLLM 0.32.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.sim.baselines.parts.drafts import observed, sigmoid
from adaptive_spec.step import FloatArray, IntArray

REFIT_STEPS = 100
_DAMPING = 50.0
_RIDGE = 1e-3
_FIRST = 0.5, -0.2


class VllmAcceptanceEstimator:
    """Acceptance of drafts, conditional on earlier drafts, from log-odds of max q.

    Args:
        positions: Kmax.

    Attributes:
        slope: [Kmax] w, equal at all positions.
        intercept: [Kmax] b.
    """

    def __init__(self, positions: int) -> None:
        slope, intercept = _FIRST
        self.slope: FloatArray = np.full(positions, slope)
        self.intercept: FloatArray = np.full(positions, intercept)
        self._steps = 0
        self._begin_round()

    def predict(self, features: FloatArray) -> FloatArray:
        """Return [B, Kmax] acceptance for log-odds [B, Kmax]; nan stays nan."""
        return sigmoid(self.slope * features + self.intercept)

    def learn(
        self, features: FloatArray, predicted: FloatArray, verified: IntArray, accepted: IntArray
    ) -> None:
        """Add a step's judged drafts, and refit every 100 steps.

        Args:
            features: [B, Kmax] log-odds of the step's drafts, nan where unknown.
            predicted: [B, Kmax] predictions from them.
            verified: [B] drafts verified.
            accepted: [B] accepted drafts.
        """
        seen, taken = observed(verified, accepted, features.shape[1])
        seen &= ~np.isnan(features)
        x = np.where(seen, features, 0.0)
        weight = np.where(seen, predicted * (1.0 - predicted), 0.0)
        residual = np.where(seen, taken - predicted, 0.0)
        self._slope_information += (weight * x * x).sum(axis=0)
        self._cross_information += (weight * x).sum(axis=0)
        self._intercept_information += weight.sum(axis=0)
        self._slope_gradient += (residual * x).sum(axis=0)
        self._intercept_gradient += residual.sum(axis=0)
        self._count += seen.sum(axis=0)
        self._steps += 1
        if self._steps >= REFIT_STEPS:
            self._steps = 0
            self._refit()
            self._begin_round()

    def _refit(self) -> None:
        """Take a Newton step on (w, b_1..b_K); b is eliminated, as only w couples the others."""
        diagonal = self._intercept_information + _RIDGE
        cross, by_intercept = self._cross_information, self._intercept_gradient
        gradient = self._slope_gradient.sum() - (cross * by_intercept / diagonal).sum()
        curvature = self._slope_information.sum() + _RIDGE - (cross**2 / diagonal).sum()
        total = self._count.sum()
        change = gradient / curvature * (total / (total + _DAMPING))
        if not np.isfinite(change) or self.slope[0] + change < 0.0:
            change = 0.0
        shift = (by_intercept - cross * change) / diagonal
        shift *= self._count / (self._count + _DAMPING)
        self.slope = self.slope + change
        self.intercept = self.intercept + np.where(np.isfinite(shift), shift, 0.0)

    def _begin_round(self) -> None:
        positions = len(self.slope)
        self._slope_information: FloatArray = np.zeros(positions)
        self._intercept_information: FloatArray = np.zeros(positions)
        self._cross_information: FloatArray = np.zeros(positions)
        self._slope_gradient: FloatArray = np.zeros(positions)
        self._intercept_gradient: FloatArray = np.zeros(positions)
        self._count = np.zeros(positions)
