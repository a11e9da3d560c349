"""Arms are K values for the whole batch, and loads within a factor of two share what is learned."""

from __future__ import annotations

import numpy as np

from adaptive_spec.cost.coverage import load_bin
from adaptive_spec.step import Capability, FloatArray, IntArray

LOAD_BINS = 13
"""Batches of 1, 2, 3-4, ... and more than 2,048."""


def arms_of(capability: Capability) -> IntArray:
    """[A] the K values an engine can run for all, ascending."""
    return np.array(capability.uniform_values, dtype=np.int64)


def bin_of(batch_size: int) -> int:
    """Which load a batch belongs to, 0..LOAD_BINS - 1."""
    return min(load_bin(batch_size), LOAD_BINS - 1)


def propensities(
    probabilities: FloatArray, arms: IntArray, limits: IntArray, verify: IntArray
) -> FloatArray:
    """[B] probability that each request's K came out as it did.

    Args:
        probabilities: [A] of the arms, which were drawn once for the batch.
        arms: [A] K values.
        limits: [B] drafts each request could have had, whatever had been drawn.
        verify: [B] K_i that came of the draw.

    Several arms may come to the same K_i for a request with few drafts: their probabilities add.
    The probability of the whole batch's K is that of the request with the most room, the least.
    """
    outcome = np.minimum(limits[:, None], arms)
    return np.asarray((outcome == verify[:, None]) @ probabilities, dtype=np.float64)
