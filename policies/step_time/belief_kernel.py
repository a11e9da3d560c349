"""One step of a Kalman filter over the coefficients, which have lower bounds."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel
from adaptive_spec.step import FloatArray

_SWEEPS = 12
"""Sweeps of the descent; the forces of the step before are where it starts."""


def _condition_loop(
    mean: FloatArray,
    covariance: FloatArray,
    push: FloatArray,
    least: FloatArray,
    coefficients: FloatArray,
    features: FloatArray,
    seconds: float,
    variance: float,
) -> None:
    size = len(mean)
    side = np.zeros(size)
    for p in range(size):
        if features[p] != 0.0:
            for q in range(size):
                side[q] += features[p] * covariance[p, q]
    total = 0.0
    surprise = seconds
    for p in range(size):
        total += features[p] * side[p]
        surprise -= features[p] * mean[p]
    total = max(total, 0.0) + variance
    for p in range(size):
        gain = side[p] / total
        mean[p] += gain * surprise
        for q in range(size):
            covariance[p, q] -= gain * side[q]
    for p in range(size):
        coefficients[p] = mean[p]
    for p in range(size):
        if push[p] != 0.0:
            for q in range(size):
                coefficients[q] += push[p] * covariance[p, q]
    for _ in range(12):
        moved = False
        held = (push > 0.0) | (coefficients < least)
        for p in range(size):
            if not held[p] or covariance[p, p] <= 0.0:
                continue
            wanted = push[p] + (least[p] - coefficients[p]) / covariance[p, p]
            more = max(wanted, 0.0) - push[p]
            if more != 0.0:
                moved = True
                push[p] += more
                for q in range(size):
                    coefficients[q] += more * covariance[p, q]
        if not moved:
            break
    for p in range(size):
        coefficients[p] = max(coefficients[p], least[p])


@kernel(
    "void(float64[::1], float64[:, ::1], float64[::1], float64[::1], float64[::1], float64[::1],"
    " float64, float64)",
    _condition_loop,
)
def condition(
    mean: FloatArray,
    covariance: FloatArray,
    push: FloatArray,
    least: FloatArray,
    coefficients: FloatArray,
    features: FloatArray,
    seconds: float,
    variance: float,
) -> None:
    """Condition a Gaussian over coefficients on an observation, in place.

    `coefficients` become those of the greatest density at or above `least`: mean + P f with forces
    f >= 0, by coordinate ascent of the dual problem. The mean itself is not bounded, so that a
    bound that has held back an observation lets go again.

    Args:
        mean: [P] of the Gaussian.
        covariance: [P, P] P.
        push: [P] forces that hold coefficients at their bounds.
        least: [P] bounds.
        coefficients: [P] result.
        features: [P] x of the observation x'c.
        seconds: the observation.
        variance: of its error (seconds squared), > 0.
    """
    side = covariance @ features
    gain = side / (max(float(features @ side), 0.0) + variance)
    mean += gain * (seconds - float(features @ mean))
    covariance -= gain[:, None] * side
    coefficients[:] = mean + push @ covariance
    for _ in range(_SWEEPS):
        for p in np.flatnonzero((push > 0.0) | (coefficients < least)):
            if covariance[p, p] <= 0.0:
                continue
            wanted = push[p] + (least[p] - coefficients[p]) / covariance[p, p]
            more = max(wanted, 0.0) - push[p]
            if more != 0.0:
                push[p] += more
                coefficients += more * covariance[p]
    np.maximum(coefficients, least, out=coefficients)
