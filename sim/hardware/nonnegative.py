"""Least squares with coefficients that are not negative, and its robust form."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray

_HUBER = 1.5
_ROUNDS = 25
_LEAST_SPREAD = 0.01
"""Errors of a per cent are never outliers, however well most rows fit."""
_BLOCK_ROWS = 64


def nonnegative_fit(
    features: FloatArray, target: FloatArray, penalty: FloatArray | None = None
) -> FloatArray:
    """x >= 0 that minimises ``|features x - target|^2 + x' penalty x``.

    Active sets, as of Lawson and Hanson, "Solving Least Squares Problems" (1974), chapter 23.

    Args:
        features: [rows, columns].
        target: [rows].
        penalty: [columns, columns], positive semi-definite, or None.

    Returns:
        [columns].
    """
    scale = np.sqrt(np.maximum((features**2).sum(axis=0), 1e-300))
    gram = _gram(features / scale)
    if penalty is not None:
        gram = gram + penalty / np.outer(scale, scale)
    moment = (features / scale).T @ target
    columns = len(moment)
    gram[np.diag_indices(columns)] += 1e-12
    solution = np.zeros(columns)
    free = np.zeros(columns, dtype=bool)
    tolerance = 1e-10 * max(float(np.abs(moment).max(initial=0.0)), 1e-300)
    for _ in range(10 * columns):
        gradient = moment - gram @ solution
        gradient[free] = -np.inf
        entering = int(np.argmax(gradient))
        if gradient[entering] <= tolerance:
            break
        free[entering] = True
        while True:
            candidate = np.zeros(columns)
            candidate[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free])
            falling = free & (candidate <= 0.0)
            if not falling.any():
                solution = candidate
                break
            # Go as far as the first coefficient that reaches 0, and fix it there.
            reach = solution[falling] / np.maximum(solution[falling] - candidate[falling], 1e-300)
            step = float(reach.min())
            solution = solution + step * (candidate - solution)
            free &= solution > 1e-14
            solution[~free] = 0.0
            if not free.any():
                break
    result: FloatArray = solution / scale
    return result


def _gram(features: FloatArray) -> FloatArray:
    """Return features' features, summed over blocks of rows.

    BLAS shares a larger product out: its last digits would depend on how many cores a process may
    use, and on busy cores it takes forty times as long.
    """
    rows, columns = features.shape
    blocks = np.pad(features, ((0, -rows % _BLOCK_ROWS), (0, 0)))
    blocks = blocks.reshape(-1, _BLOCK_ROWS, columns)
    gram: FloatArray = (blocks.transpose(0, 2, 1) @ blocks).sum(axis=0)
    return gram


def robust_nonnegative_fit(
    features: FloatArray, seconds: FloatArray, penalty: FloatArray | None = None
) -> FloatArray:
    """The same for relative errors, with Huber's weights: outliers count little.

    Errors are relative to the fit of the round before: relative to the measurement, long steps
    would count less than short ones, and the fit would be too low.

    Args:
        features: [rows, columns].
        seconds: [rows], all > 0.
        penalty: [columns, columns], for errors relative to the median of `seconds`.
    """
    typical = float(np.median(seconds))
    if penalty is not None:
        penalty = penalty / typical**2
    scale: FloatArray = seconds.copy()
    weights: FloatArray = np.ones(len(seconds))
    solution = np.zeros(features.shape[1])
    for _ in range(_ROUNDS):
        factor = np.sqrt(weights) / scale
        new = nonnegative_fit(features * factor[:, None], seconds * factor, penalty)
        predicted = np.maximum(features @ new, 1e-3 * typical)
        errors = np.abs(seconds / predicted - 1.0)
        spread = max(1.4826 * float(np.median(errors)), _LEAST_SPREAD)
        weights = np.minimum(1.0, _HUBER * spread / np.maximum(errors, 1e-12))
        scale = predicted
        done = bool(np.allclose(new, solution, rtol=1e-4, atol=1e-12))
        solution = new
        if done:
            break
    return solution
