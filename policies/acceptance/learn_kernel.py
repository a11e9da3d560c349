"""The update of position and request effects from the outcomes of a step."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel
from adaptive_spec.step import FloatArray, IntArray

EVIDENCE_LIMIT = 1000.0
"""Fisher information at which the memory of a position is capped."""
_LEAST_INFORMATION = 0.02
# Near a hazard of 0 or 1, Newton's own step overshoots, and the next one overshoots back.
_DAMPING = 0.25
"""Damping of a step: a position moves by less than 1 / 0.25 logits."""


def _learn_loop(
    hazard: FloatArray,
    slots: IntArray,
    verified: IntArray,
    accepted: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> tuple[float, float, int, float, float, FloatArray]:
    kmax, batch = hazard.shape
    sums = np.zeros((4, kmax), np.float64)
    unknown_sums = np.empty((2, batch), np.float64)
    observed = 0
    slope = 0.0
    curvature = 0.0
    for i in range(batch):
        slot = slots[i]
        gradient = 0.0
        total = 0.0
        fisher = 0.0
        unknown = 1.0 / (1.0 + prior_variance * request_information[slot])
        for j in range(min(accepted[i] + 1, verified[i], kmax)):
            h = hazard[j, i]
            residual = (1.0 if j < accepted[i] else 0.0) - h
            information = max(h * (1.0 - h), _LEAST_INFORMATION)
            sums[0, j] += residual
            sums[1, j] += information
            sums[2, j] += unknown * residual
            sums[3, j] += unknown * information
            position_count[j] += 1
            observed += 1
            gradient += residual
            total += information
            fisher += h * (1.0 - h)
        unknown_sums[0, i] = unknown * gradient
        unknown_sums[1, i] = unknown * fisher
        by_log_variance = unknown * request_effect[slot]
        slope += by_log_variance * gradient
        curvature += by_log_variance * by_log_variance * total
        information = request_information[slot] * discount + total
        effect = request_effect[slot] + gradient / (1.0 / prior_variance + information)
        forgets = (0.5 if verified[i] > 0 else 1.0) * (1.0 - discount)
        request_effect[slot] = effect * (1.0 - forgets / (1.0 + prior_variance * information))
        request_information[slot] = information
    surprise = 0.0
    variance = 0.0
    for j in range(kmax):
        surprise += sums[0, j]
        variance += sums[1, j]
        position_evidence[j] = min(position_evidence[j], EVIDENCE_LIMIT) + sums[3, j]
        position_effect[j] += sums[2, j] / (position_evidence[j] + _DAMPING * abs(sums[2, j]))
    return surprise, variance, observed, slope, curvature, unknown_sums


@kernel(
    "Tuple((float64, float64, int64, float64, float64, float64[:, ::1]))(float64[:, :], int64[:],"
    " int64[:], int64[:], float64[::1], float64[::1], int64[::1], float64[::1], float64[::1],"
    " float64, float64)",
    _learn_loop,
)
def learn(
    hazard: FloatArray,
    slots: IntArray,
    verified: IntArray,
    accepted: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> tuple[float, float, int, float, float, FloatArray]:
    """Update the effects of positions and requests by one step, in place.

    Position j of request i was observed iff ``j < min(accepted + 1, verified)`` (0-based), and
    accepted iff ``j < accepted``. Residuals are y - h with the hazards `[Kmax, B]` given. Each
    request counts for a position by the share of its prior variance that is left. A request
    forgets; one that verified nothing returns to the mean twice as fast.

    Args:
        hazard: [Kmax, B] as predicted.
        slots: [B] rows of the requests.
        verified: [B]
        accepted: [B]
        position_effect: [Kmax]
        position_evidence: [Kmax] Fisher information behind it.
        position_count: [Kmax] times seen.
        request_effect: [slots]
        request_information: [slots]
        prior_variance: of request effects.
        discount: of a request's information, per step.

    Returns the sum of all residuals, of their Fisher information, and the number of observations;
    slope and curvature of the outcomes' log-likelihood in the logarithm of the prior variance v
    (du_i / d log v is u_i times the share of v that was left); and [2, B] the first two sums by
    request, times that share.
    """
    position = np.arange(len(hazard))[:, None]
    seen = position < np.minimum(accepted + 1, verified)
    residual = np.where(seen, (position < accepted) - hazard, 0.0)
    fisher = np.where(seen, hazard * (1.0 - hazard), 0.0)
    information = np.where(seen, np.maximum(fisher, _LEAST_INFORMATION), 0.0)
    unknown = 1.0 / (1.0 + prior_variance * request_information[slots])
    fresh = (unknown * information).sum(axis=1)
    position_evidence[:] = np.minimum(position_evidence, EVIDENCE_LIMIT) + fresh
    surplus = (unknown * residual).sum(axis=1)
    position_effect += surplus / (position_evidence + _DAMPING * np.abs(surplus))
    position_count += np.count_nonzero(seen, axis=1)
    gradient = residual.sum(axis=0)
    total = information.sum(axis=0)
    by_log_variance = unknown * request_effect[slots]
    slope = (by_log_variance * gradient).sum()
    curvature = (by_log_variance * by_log_variance * total).sum()
    kept = request_information[slots] * discount + total
    effect = request_effect[slots] + gradient / (1.0 / prior_variance + kept)
    # The discounted evidence no longer supports the whole effect: it shrinks towards the prior.
    forgets = np.where(verified > 0, 0.5, 1.0) * (1.0 - discount)
    request_effect[slots] = effect * (1.0 - forgets / (1.0 + prior_variance * kept))
    request_information[slots] = kept
    return (
        float(gradient.sum()),
        float(total.sum()),
        int(np.count_nonzero(seen)),
        float(slope),
        float(curvature),
        np.stack((unknown * gradient, unknown * fisher.sum(axis=0))),
    )
