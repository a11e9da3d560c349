"""Hedge over members whose losses are all known after each step, for a world that changes.

Exponential weights (Freund and Schapire 1997) on discounted losses, with fixed share (Herbster and
Warmuth 1998): each step

    w_m <- w_m^gamma exp(-eta loss_m),  then  w_m <- (1 - alpha) w_m / sum(w) + alpha / M,
    eta = sqrt(8 ln M / sum_s gamma^(t - s) range_s^2).

The learning rate follows from the range of the losses seen lately (the bound of Hedge with known
range and horizon 1 / (1 - gamma)), so it has no unit to be tuned to. alpha keeps every member
within ln(M / alpha) of the best, so that a member that has become the best is found at once.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.step import FloatArray

_SWITCH = 1.5
"""A member takes the lead when its weight is so many times that of the leader."""


class Hedge:
    """Weights of M members.

    Args:
        members: M.
        discount: gamma, per step.
        fixed_share: alpha, per step.
    """

    def __init__(self, members: int, *, discount: float, fixed_share: float) -> None:
        self._discount = discount
        self._fixed_share = fixed_share
        self.weights: FloatArray = np.full(members, 1.0 / members)
        self._squared_range = 0.0
        self.leader = 0

    def learn(self, losses: FloatArray) -> None:
        """Take up a step: losses [M], inf for a member that is out."""
        finite = losses[np.isfinite(losses)]
        if len(finite) < 2:
            return
        best = float(finite.min())
        spread = float(finite.max()) - best
        self._squared_range = self._discount * self._squared_range + spread * spread
        if self._squared_range <= 0.0:
            return
        rate = math.sqrt(8.0 * math.log(len(self.weights)) / self._squared_range)
        weights = self.weights**self._discount * np.exp(-rate * (losses - best))
        self._normalise(weights, np.isfinite(losses))

    def remove(self, member: int) -> None:
        """A member is out for good."""
        self.weights[member] = 0.0
        if self.weights.sum() > 0.0:
            self._normalise(self.weights, self.weights > 0.0)

    def restore(self, weights: FloatArray) -> None:
        """Take up saved weights [M], positive, of any sum."""
        self.weights = weights / weights.sum()
        self.leader = int(np.argmax(self.weights))

    def _normalise(self, weights: FloatArray, able: np.ndarray) -> None:
        weights = np.where(able, weights, 0.0)
        share = self._fixed_share / max(int(np.count_nonzero(able)), 1)
        self.weights = np.where(
            able, (1.0 - self._fixed_share) * weights / weights.sum() + share, 0.0
        )
        best = int(np.argmax(self.weights))  # the first of equals
        if self.weights[best] > _SWITCH * self.weights[self.leader]:
            self.leader = best
