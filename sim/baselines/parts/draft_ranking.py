"""Survival of drafts, and the selection of a batch's drafts by survival."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray, IntArray


def survival_of(acceptance: FloatArray) -> FloatArray:
    """Return [B, Kmax] the probability that all drafts up to a position are accepted.

    Args:
        acceptance: [B, Kmax] acceptance given that earlier drafts were accepted; unknown (nan)
            counts as certain.
    """
    survival = np.where(np.isnan(acceptance), 1.0, acceptance)
    return np.cumprod(survival, axis=1, out=survival)


def most_likely(survival: FloatArray, available: IntArray, budget: int) -> IntArray:
    """Return [B] K_i: the `budget` drafts of the batch with the largest survival.

    Survival never rises along a request, so the selected drafts are prefixes. Ties go to the
    shallower position, then to the earlier request: all ranks with the same numbers admit the same
    drafts, and a draft's place does not depend on deeper ones.

    Args:
        survival: [B, Kmax], not increasing along a row.
        available: [B] available drafts, 0..Kmax.
        budget: drafts to admit; all available ones if fewer.
    """
    batch, positions = survival.shape
    if budget >= int(available.sum()):
        return available.copy()
    # Position-major order: a stable sort then breaks ties as documented.
    value = np.where(np.arange(positions)[:, None] < available, survival.T, -1.0).ravel()
    admitted = np.argsort(-value, kind="stable")[: max(budget, 0)]
    return np.bincount(admitted % batch, minlength=batch).astype(np.int64)
