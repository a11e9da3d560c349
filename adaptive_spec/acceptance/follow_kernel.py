"""The update of request effects that the step was not planned with, and their score."""

from __future__ import annotations

import numpy as np

from adaptive_spec.kernels import kernel, sum_in_order
from adaptive_spec.step import FloatArray, IntArray


def _follow_loop(
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    odds_ratio: FloatArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> float:
    kmax, batch = hazard.shape
    better = 0.0
    for i in range(batch):
        if verified[i] <= 0:
            continue
        gradient = 0.0
        total = 0.0
        gained = 0.0
        for j in range(min(accepted[i] + 1, verified[i], kmax)):
            h = hazard[j, i]
            own = h * odds_ratio[i]
            own = own / (1.0 - h + own)
            outcome = 1.0 if j < accepted[i] else 0.0
            theirs = outcome - h
            residual = outcome - own
            gained += theirs * theirs - residual * residual
            gradient += residual
            total += max(own * (1.0 - own), 0.02)
        better += gained
        information = request_information[i] * discount + total
        precision = 1.0 / prior_variance + information
        effect = request_effect[i] + gradient / precision
        effect = effect * (1.0 - 0.5 * (1.0 - discount) / (1.0 + prior_variance * information))
        request_effect[i] = effect
        request_information[i] = information
    return better


@kernel(
    "float64(float64[:, :], int64[:], int64[:], float64[:], float64[:], float64[:], float64,"
    " float64)",
    _follow_loop,
)
def follow(
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    odds_ratio: FloatArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> float:
    """The update of request effects as in `learn`, of effects that the hazards were not made from.

    Theirs are of odds `odds_ratio` [B] times as large. Updates `request_effect` and
    `request_information` `[B]` in place. Returns by how much their squared residuals are smaller
    than those of the hazards `[Kmax, B]` given, summed over what was observed.
    """
    position = np.arange(len(hazard))[:, None]
    seen = position < np.minimum(accepted + 1, verified)
    own = hazard * odds_ratio
    own = own / (1.0 - hazard + own)
    outcome = position < accepted
    theirs = np.where(seen, outcome - hazard, 0.0)
    residual = np.where(seen, outcome - own, 0.0)
    better = sum_in_order(theirs * theirs - residual * residual)
    touched = verified > 0
    total = sum_in_order(np.where(seen, np.maximum(own * (1.0 - own), 0.02), 0.0))
    new_information = request_information * discount + total
    effect = request_effect + sum_in_order(residual) / (1.0 / prior_variance + new_information)
    effect = effect * (1.0 - 0.5 * (1.0 - discount) / (1.0 + prior_variance * new_information))
    request_effect[:] = np.where(touched, effect, request_effect)
    request_information[:] = np.where(touched, new_information, request_information)
    return float(np.cumsum(better)[-1]) if better.size else 0.0
