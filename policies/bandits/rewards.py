"""Usual reward of a step at each load: emitted tokens per second and request.

The unit is per request because the batch size varies within a load.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.bandits.arms import LOAD_BINS
from adaptive_spec.step import FloatArray, IntArray

_SCALE_MEMORY = 256


class RewardScale:
    """Running mean of rewards at each load, which normalises rewards to about 1."""

    def __init__(self) -> None:
        self.mean: FloatArray = np.zeros(LOAD_BINS)
        self.count: IntArray = np.zeros(LOAD_BINS, dtype=np.int64)

    def normalised(self, load: int, reward: float) -> float:
        """Divide a reward by the load's mean, this reward included; at most 4."""
        count = int(self.count[load])
        rate = 1.0 / min(count + 1, _SCALE_MEMORY)
        self.mean[load] += rate * (reward - self.mean[load])
        self.count[load] = min(count + 1, _SCALE_MEMORY)
        return min(reward / max(float(self.mean[load]), 1e-12), 4.0)
