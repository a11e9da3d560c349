"""Arms (K values for the whole batch) and load bins (batch sizes that share what is learned)."""

from __future__ import annotations

import numpy as np

from adaptive_spec.cost.coverage import load_bin
from adaptive_spec.step import Capability, FloatArray, IntArray

LOAD_BINS = 13
"""Number of load bins: batches of 1, 2, 3-4, ... and more than 2,048."""


def arms_of(capability: Capability) -> IntArray:
    """Return [A] the uniform K values that an engine can run, ascending."""
    return np.array(capability.uniform_values, dtype=np.int64)


def bin_of(batch_size: int) -> int:
    """Return the load bin of a batch size, 0..LOAD_BINS - 1."""
    return min(load_bin(batch_size), LOAD_BINS - 1)


def propensities(
    probabilities: FloatArray, arms: IntArray, limits: IntArray, verify: IntArray
) -> FloatArray:
    """Return [B] the probability of each request's K.

    Args:
        probabilities: [A] probabilities of the arms; one draw per batch.
        arms: [A] K values.
        limits: [B] drafts available to each request, whichever arm is drawn.
        verify: [B] K_i that resulted from the draw.

    Several arms may give the same K_i to a request with few drafts: their probabilities add. The
    probability of the whole batch's K is that of the request with the most room, the smallest.
    """
    outcome = np.minimum(limits[:, None], arms)
    return np.asarray((outcome == verify[:, None]) @ probabilities, dtype=np.float64)
