"""Survival of drafts, and those of a batch that have the largest."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray, IntArray


def survival_of(acceptance: FloatArray) -> FloatArray:
    """[B, Kmax] probability that all drafts up to a position are accepted.

    Args:
        acceptance: [B, Kmax] of each given those before; unknown (nan) counts as certain.
    """
    survival = np.where(np.isnan(acceptance), 1.0, acceptance)
    return np.cumprod(survival, axis=1, out=survival)


def most_likely(survival: FloatArray, available: IntArray, budget: int) -> IntArray:
    """[B] K_i: the `budget` drafts of the batch with the largest survival.

    Survival never rises along a request, so they are prefixes. Equal ones go to the shallower
    position, then to the earlier request, by counting: every rank that ranks the same numbers
    admits the same, and a draft's place doesn't depend on deeper ones.

    Args:
        survival: [B, Kmax], not increasing along a row.
        available: [B] drafts at hand, 0..Kmax.
        budget: drafts to admit; all that are at hand if there are fewer.
    """
    batch, positions = survival.shape
    if budget >= int(available.sum()):
        return available.copy()
    # Position by position: a stable sort then breaks ties as said above.
    value = np.where(np.arange(positions)[:, None] < available, survival.T, -1.0).ravel()
    admitted = np.argsort(-value, kind="stable")[: max(budget, 0)]
    return np.bincount(admitted % batch, minlength=batch).astype(np.int64)
