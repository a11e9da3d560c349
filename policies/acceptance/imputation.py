"""Imputed outcomes of drafts that were made and not verified."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray, IntArray


def passed_over(
    signal: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    hazard: FloatArray,
    of_history: FloatArray,
) -> tuple[FloatArray, FloatArray, bool]:
    """Return what history may learn from drafts that were made and not verified.

    They count by the chance that they would have been reached: 1 for the next after the last
    verified one if all of these were accepted, and less by each hazard further on.

    Args:
        signal: [Kmax, B] what the drafts had shown; nan where none was made.
        verified: [B] K_i.
        accepted: [B]
        hazard: [Kmax, B] by what they had shown.
        of_history: [Kmax, B] without it.

    Returns [Kmax, B] by how much the first says more than the second, by weight; the second's
    h (1 - h), by weight; and whether anything counts.
    """
    beyond = np.arange(len(signal))[:, None] >= verified
    reached = np.ones_like(hazard)
    np.cumprod(np.where(beyond, hazard, 1.0)[:-1], axis=0, out=reached[1:])
    weight = np.where(beyond & (accepted >= verified) & ~np.isnan(signal), reached, 0.0)
    return (
        weight * (hazard - of_history),
        weight * of_history * (1.0 - of_history),
        bool(weight.any()),
    )
