"""The update of position and request effects from the outcomes of a step."""

from __future__ import annotations

import numpy as np

from adaptive_spec.kernels import kernel, sum_in_order
from adaptive_spec.step import FloatArray, IntArray


def _learn_loop(
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    position_gradient: FloatArray,
    position_information: FloatArray,
    position_count: IntArray,
    base_gradient: FloatArray,
    base_information: FloatArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> None:
    kmax, batch = hazard.shape
    position_gradient[:] = 0.0
    position_information[:] = 0.0
    base_gradient[:] = 0.0
    base_information[:] = 0.0
    for i in range(batch):
        if verified[i] <= 0:
            continue
        gradient = 0.0
        total = 0.0
        unknown = 1.0 / (1.0 + prior_variance * request_information[i])
        for j in range(min(accepted[i] + 1, verified[i], kmax)):
            h = hazard[j, i]
            residual = (1.0 if j < accepted[i] else 0.0) - h
            information = max(h * (1.0 - h), 0.02)
            position_gradient[j] += residual
            position_information[j] += information
            base_gradient[j] += unknown * residual
            base_information[j] += unknown * information
            position_count[j] += 1
            gradient += residual
            total += information
        information = request_information[i] * discount + total
        precision = 1.0 / prior_variance + information
        effect = request_effect[i] + gradient / precision
        effect = effect * (1.0 - 0.5 * (1.0 - discount) / (1.0 + prior_variance * information))
        request_effect[i] = effect
        request_information[i] = information


@kernel(
    "void(float64[:, :], int64[:], int64[:], float64[:], float64[:], int64[:], float64[:],"
    " float64[:], float64[:], float64[:], float64, float64)",
    _learn_loop,
)
def learn(
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    position_gradient: FloatArray,
    position_information: FloatArray,
    position_count: IntArray,
    base_gradient: FloatArray,
    base_information: FloatArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> None:
    """One step's update of the request effects, and the sums for the position effects.

    Position j of request i was observed iff ``j < min(accepted + 1, verified)`` (0-based), and
    accepted iff ``j < accepted``. Residuals are y - h with the hazards `[Kmax, B]` given.
    Updates in place: `position_gradient`, `position_information` `[Kmax]` (overwritten),
    `position_count` `[Kmax]` (times seen, added to), `base_gradient`, `base_information` `[Kmax]`
    (the first two again, each request weighted by the share of its prior variance that is left),
    `request_effect`, `request_information` `[B]`. Requests that verified nothing are untouched.
    """
    kmax = len(hazard)
    position = np.arange(kmax)[:, None]
    seen = position < np.minimum(accepted + 1, verified)
    residual = np.where(seen, (position < accepted) - hazard, 0.0)
    information = np.where(seen, np.maximum(hazard * (1.0 - hazard), 0.02), 0.0)
    position_gradient[:] = sum_in_order(residual.T)
    position_information[:] = sum_in_order(information.T)
    unknown = 1.0 / (1.0 + prior_variance * request_information)
    base_gradient[:] = sum_in_order((unknown * residual).T)
    base_information[:] = sum_in_order((unknown * information).T)
    position_count += np.count_nonzero(seen, axis=1)
    touched = verified > 0
    total = sum_in_order(information)
    gradient = sum_in_order(residual)
    new_information = request_information * discount + total
    precision = 1.0 / prior_variance + new_information
    effect = request_effect + gradient / precision
    # The discounted evidence no longer supports the whole effect: it shrinks towards the prior.
    effect = effect * (1.0 - 0.5 * (1.0 - discount) / (1.0 + prior_variance * new_information))
    request_effect[:] = np.where(touched, effect, request_effect)
    request_information[:] = np.where(touched, new_information, request_information)
