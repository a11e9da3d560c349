"""Weighted least squares with bounds: observations added to the normal equations, and descent."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel, kernel_of_kernels
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
    gram: FloatArray,
    moment: FloatArray,
    coefficients: FloatArray,
    least: FloatArray,
    along: FloatArray,
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
    slope = bend = 0.0
    lowest = -np.inf
    for p in range(size):
        if along[p] == 0.0:
            continue
        slope += along[p] * gradient[p]
        lowest = max(lowest, (least[p] - coefficients[p]) / along[p])
        for q in range(size):
            if along[q] != 0.0:
                bend += along[p] * gram[p, q] * along[q]
    if bend > 0.0:
        step = max(lowest, slope / bend)
        for p in range(size):
            if along[p] != 0.0:
                coefficients[p] = max(least[p], coefficients[p] + step * along[p])


@kernel(
    "void(float64[:, ::1], float64[::1], float64[::1], float64[::1], float64[::1])",
    _descend_loop,
)
def descend(
    gram: FloatArray,
    moment: FloatArray,
    coefficients: FloatArray,
    least: FloatArray,
    along: FloatArray,
) -> None:
    """Descend on min c'Gc - 2m'c subject to c >= `least`, in place.

    One sweep over the coordinates, and the best step along a direction: coordinates that hold one
    another move together there, and by little at a time in a sweep.

    Args:
        gram: [P, P] G, symmetric positive semi-definite.
        moment: [P] m.
        coefficients: [P] c.
        least: [P]
        along: [P] the direction, nowhere below zero.
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
    (moved,) = np.nonzero(along)
    if not moved.size:
        return
    ways = along[moved]
    bend = np.cumsum(ways[:, None] * gram[moved[:, None], moved] * ways)[-1]
    if bend > 0.0:
        lowest = ((least[moved] - coefficients[moved]) / ways).max()
        step = max(lowest, np.cumsum(ways * gradient[moved])[-1] / bend)
        coefficients[moved] = np.maximum(least[moved], coefficients[moved] + step * ways)


@kernel_of_kernels(
    "void(float64[:, ::1], float64[::1], float64[::1], float64[::1], float64[::1],"
    " float64[::1], float64, float64, float64[::1], float64, float64)"
)
def exchange(
    gram: FloatArray,
    moment: FloatArray,
    coefficients: FloatArray,
    least: FloatArray,
    along: FloatArray,
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
    descend(gram, moment, coefficients, least, along)
