"""The compiled loops that tell requests apart; part of `numba_kernel`, equal to `numpy_kernel`."""

from __future__ import annotations

import numba
import numpy as np

from adaptive_spec.kernels.layout import integers
from adaptive_spec.step import FloatArray, IntArray

_F1 = numba.float64[::1]
_F2 = numba.float64[:, ::1]
_F3 = numba.float64[:, :, ::1]
_I1 = numba.int64[::1]


@numba.njit(
    numba.float64(_F2, _I1, _I1, _F1, _F1, _F1, numba.float64, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _follow(
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


@numba.njit(_F1(_F2, _F1), nogil=True, error_model="numpy", boundscheck=False)
def _worth(survival: FloatArray, seconds: FloatArray) -> FloatArray:
    kmax, batch = survival.shape
    result = np.empty(batch, np.float64)
    all_emitted = 0.0
    all_worth = 0.0
    for i in range(batch):
        tokens = 1.0
        emitted = 1.0
        best = 1.0 / seconds[0]
        for j in range(kmax):
            tokens += survival[j, i]
            pace = tokens / seconds[j + 1]
            if pace > best:
                best = pace
                emitted = tokens
        result[i] = 1.0 / best
        all_emitted += emitted
        all_worth += result[i] * emitted
    scale = all_emitted / all_worth
    for i in range(batch):
        result[i] *= scale
    return result


@numba.njit(numba.void(_F2, _I1, _I1, _F3), nogil=True, error_model="numpy", boundscheck=False)
def _tally(hazard: FloatArray, verified: IntArray, accepted: IntArray, counts: FloatArray) -> None:
    kmax, bins, _ = counts.shape
    for j in range(kmax):
        for i in range(hazard.shape[1]):
            known = 0.0 <= hazard[j, i] <= 1.0
            if known and j < verified[i] and j <= accepted[i]:
                place = min(int(hazard[j, i] * bins), bins - 1)
                counts[j, place, 1 if j < accepted[i] else 0] += 1.0
                counts[j, place, 2] += hazard[j, i]


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
    """See `numpy_kernel.follow`."""
    return float(
        _follow(
            np.ascontiguousarray(hazard),
            integers(verified),
            integers(accepted),
            odds_ratio,
            request_effect,
            request_information,
            prior_variance,
            discount,
        )
    )


def worth(survival: FloatArray, seconds: FloatArray) -> FloatArray:
    """See `numpy_kernel.worth`."""
    result: FloatArray = _worth(np.ascontiguousarray(survival), np.ascontiguousarray(seconds))
    return result


def tally(hazard: FloatArray, verified: IntArray, accepted: IntArray, counts: FloatArray) -> None:
    """See `numpy_kernel.tally`."""
    _tally(
        np.ascontiguousarray(hazard),
        integers(verified),
        integers(accepted),
        counts,
    )
