"""Hazards from logits, and survivals from hazards."""

from __future__ import annotations

import numpy as np

from adaptive_spec.kernels import kernel
from adaptive_spec.step import FloatArray

HAZARD_FLOOR, HAZARD_CEILING = 0.01, 0.995


def logits_to_hazards(logits: FloatArray) -> None:
    """Logits [Kmax, B] become hazards 1 / (1 + exp(-x)) within floor and ceiling, in place."""
    np.negative(logits, out=logits)
    np.exp(logits, out=logits)  # numpy's for both forms: another exp differs in the last bit
    odds_to_hazards(logits)


def _odds_to_hazards_loop(odds_against: FloatArray) -> None:
    for j in range(odds_against.shape[0]):
        for i in range(odds_against.shape[1]):
            hazard = 1.0 / (odds_against[j, i] + 1.0)
            hazard = HAZARD_FLOOR if hazard < HAZARD_FLOOR else hazard
            odds_against[j, i] = HAZARD_CEILING if hazard > HAZARD_CEILING else hazard


@kernel("void(float64[:, ::1])", _odds_to_hazards_loop)
def odds_to_hazards(odds_against: FloatArray) -> None:
    """Odds (1 - h) / h [Kmax, B] become hazards, in place."""
    odds_against += 1.0
    np.reciprocal(odds_against, out=odds_against)
    np.maximum(odds_against, HAZARD_FLOOR, out=odds_against)
    np.minimum(odds_against, HAZARD_CEILING, out=odds_against)


def _survive_loop(hazard: FloatArray) -> None:
    for j in range(1, hazard.shape[0]):
        for i in range(hazard.shape[1]):
            hazard[j, i] *= hazard[j - 1, i]


@kernel("void(float64[:, ::1])", _survive_loop)
def survive(hazard: FloatArray) -> None:
    """Hazards [Kmax, B] become survivals, the product up to each position, in place."""
    np.cumprod(hazard, axis=0, out=hazard)
