"""Weighted least squares with bounds: observations added to the normal equations, and descent."""

from __future__ import annotations

import numpy as np

from adaptive_spec.kernels import kernel, kernel_of_kernels
from adaptive_spec.step import FloatArray


def _absorb_loop(
    gram: FloatArray, moment: FloatArray, features: FloatArray, target: float, weight: float
) -> None:
    for p in range(len(features)):
        weighted = weight * features[p]
        moment[p] += weighted * target
        for q in range(len(features)):
            gram[p, q] += weighted * features[q]


@kernel(
    "void(float64[:, ::1], float64[::1], float64[::1], float64, float64)",
    _absorb_loop,
)
def absorb(
    gram: FloatArray, moment: FloatArray, features: FloatArray, target: float, weight: float
) -> None:
    """Add a weighted observation to the normal equations, in place.

    `gram` [P, P] += w x x', `moment` [P] += w x y; a negative weight takes one out again.
    """
    weighted = weight * features
    gram += weighted[:, None] * features
    moment += weighted * target


def _descend_loop(
    gram: FloatArray, moment: FloatArray, coefficients: FloatArray, least: FloatArray
) -> None:
    size = len(coefficients)
    gradient = moment.copy()
    for p in range(size):
        for q in range(size):
            gradient[q] -= coefficients[p] * gram[p, q]
    for p in range(size):
        curvature = gram[p, p]
        if curvature <= 0.0:
            continue
        updated = max(least[p], coefficients[p] + gradient[p] / curvature)
        step = updated - coefficients[p]
        for q in range(size):
            gradient[q] -= step * gram[p, q]
        coefficients[p] = updated


@kernel(
    "void(float64[:, ::1], float64[::1], float64[::1], float64[::1])",
    _descend_loop,
)
def descend(
    gram: FloatArray, moment: FloatArray, coefficients: FloatArray, least: FloatArray
) -> None:
    """One sweep of coordinate descent on min c'Gc - 2m'c subject to c >= `least`, in place.

    `gram` [P, P] is symmetric positive semi-definite; `moment`, `coefficients` and `least` are [P].
    """
    gradient = moment.copy()
    for p in np.flatnonzero(coefficients):
        gradient -= coefficients[p] * gram[p]
    for p in range(len(coefficients)):
        curvature = gram[p, p]
        if curvature <= 0.0:
            continue
        updated = max(least[p], coefficients[p] + gradient[p] / curvature)
        if updated != coefficients[p]:
            gradient -= (updated - coefficients[p]) * gram[p]
            coefficients[p] = updated


@kernel_of_kernels(
    "void(float64[:, ::1], float64[::1], float64[::1], float64[::1],"
    " float64[::1], float64, float64, float64[::1], float64, float64)"
)
def exchange(
    gram: FloatArray,
    moment: FloatArray,
    coefficients: FloatArray,
    least: FloatArray,
    old: FloatArray,
    old_target: float,
    old_weight: float,
    new: FloatArray,
    new_target: float,
    new_weight: float,
) -> None:
    """Take an observation out of the normal equations, add another, and `descend`, in place."""
    absorb(gram, moment, old, old_target, -old_weight)
    absorb(gram, moment, new, new_target, new_weight)
    descend(gram, moment, coefficients, least)
