"""The inner loops compiled by numba, equal to `numpy_kernel` to the last bit.

Compiled for fixed types when this module is imported. No on-disk cache: numba's is a pickle.
"""

from __future__ import annotations

import numba
import numpy as np

from adaptive_spec.values import FloatArray, IntArray

_F1 = numba.float64[::1]
_F2 = numba.float64[:, ::1]
_I1 = numba.int64[::1]
_RADIX_BITS = 8
_RADIX = 1 << _RADIX_BITS


@numba.njit(
    numba.types.Tuple((_I1, _F1))(_F2, _I1), nogil=True, error_model="numpy", boundscheck=False
)
def _descending(values: FloatArray, limit: IntArray) -> tuple[IntArray, FloatArray]:
    """Eligible items (j < limit_i) by falling value, ties in ravelled order: a radix sort."""
    kmax, batch = values.shape
    count = 0
    for i in range(batch):
        count += int(min(limit[i], kmax))
    item = np.empty(count, np.int64)
    key32 = np.empty(count, np.float32)
    at = 0
    for j in range(kmax):
        for i in range(batch):
            if j < limit[i]:
                item[at] = j * batch + i
                # Adding zero turns -0.0 into 0.0, whose bits sort as a number does.
                key32[at] = np.float32(values[j, i]) + np.float32(0.0)
                at += 1
    key = key32.view(np.uint32)
    other_item = np.empty(count, np.int64)
    other_key = np.empty(count, np.uint32)
    start = np.empty(_RADIX + 1, np.int64)
    for shift in (0, _RADIX_BITS, 2 * _RADIX_BITS, 3 * _RADIX_BITS):
        start[:] = 0
        for n in range(count):
            digit = _RADIX - 1 - ((np.int64(key[n]) >> shift) & (_RADIX - 1))
            start[digit + 1] += 1
        for place in range(_RADIX):
            start[place + 1] += start[place]
        for n in range(count):
            digit = _RADIX - 1 - ((np.int64(key[n]) >> shift) & (_RADIX - 1))
            other_item[start[digit]] = item[n]
            other_key[start[digit]] = key[n]
            start[digit] += 1
        item, other_item = other_item, item
        key, other_key = other_key, key
    ordered = np.empty(count, np.float64)
    for n in range(count):
        ordered[n] = values[item[n] // batch, item[n] % batch]
    return item, ordered


@numba.njit(
    numba.types.Tuple((_I1, numba.int64, numba.float64, numba.float64))(
        _F2, _I1, _I1, numba.float64, _F1, _F1, _I1
    ),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _admit(
    values: FloatArray,
    possible: IntArray,
    available: IntArray,
    base: float,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
) -> tuple[IntArray, int, float, float]:
    kmax, batch = values.shape
    limit = np.empty(batch, np.int64)
    for i in range(batch):
        limit[i] = max(possible[i], available[i])
    item, ordered = _descending(values, limit)

    best = -np.inf
    best_depth = depths[0]
    total = np.zeros(kmax + 1)
    admitted = np.zeros(kmax + 1, np.int64)
    top = np.full(kmax + 1, -np.inf)
    for depth in depths:
        top[depth] = base / (verify_seconds[0] + draft_seconds[depth])
    for n in range(len(item)):
        j = item[n] // batch
        if j >= possible[item[n] % batch]:
            continue
        for depth in depths:
            if j < depth:
                total[depth] += ordered[n]
                admitted[depth] += 1
                score = (base + total[depth]) / (
                    verify_seconds[admitted[depth]] + draft_seconds[depth]
                )
                if score > top[depth]:
                    top[depth] = score
    for depth in depths:
        if top[depth] > best:
            best = top[depth]
            best_depth = depth
    next_step = best

    best = base / (verify_seconds[0] + draft_seconds[best_depth])
    take = 0
    value = 0.0
    count = 0
    running = 0.0
    for n in range(len(item)):
        if item[n] // batch >= available[item[n] % batch]:
            continue
        running += ordered[n]
        count += 1
        score = (base + running) / (verify_seconds[count] + draft_seconds[best_depth])
        if score > best:
            best = score
            take = count
            value = running
    verify = np.zeros(batch, np.int64)
    count = 0
    for n in range(len(item)):
        if count == take:
            break
        i = item[n] % batch
        if item[n] // batch >= available[i]:
            continue
        verify[i] += 1
        count += 1
    return verify, best_depth, value, next_step


@numba.njit(
    numba.void(_F2, _I1, _I1, _F1, _F1, _I1, _F1, _F1, numba.float64, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _learn(
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    position_gradient: FloatArray,
    position_information: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> None:
    kmax, batch = hazard.shape
    position_gradient[:] = 0.0
    position_information[:] = 0.0
    for i in range(batch):
        if verified[i] <= 0:
            continue
        gradient = 0.0
        total = 0.0
        for j in range(min(accepted[i] + 1, verified[i], kmax)):
            h = hazard[j, i]
            residual = (1.0 if j < accepted[i] else 0.0) - h
            information = max(h * (1.0 - h), 0.02)
            position_gradient[j] += residual
            position_information[j] += information
            position_count[j] += 1
            gradient += residual
            total += information
        information = request_information[i] * discount + total
        precision = 1.0 / prior_variance + information
        effect = request_effect[i] + gradient / precision
        effect = effect * (1.0 - 0.5 * (1.0 - discount) / (1.0 + prior_variance * information))
        request_effect[i] = effect
        request_information[i] = information


@numba.njit(
    numba.void(_F2, _F1, _F1, numba.float64, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _absorb(
    gram: FloatArray, moment: FloatArray, features: FloatArray, target: float, weight: float
) -> None:
    for p in range(len(features)):
        weighted = weight * features[p]
        moment[p] += weighted * target
        for q in range(len(features)):
            gram[p, q] += weighted * features[q]


@numba.njit(numba.void(_F2, _F1, _F1), nogil=True, error_model="numpy", boundscheck=False)
def _descend(gram: FloatArray, moment: FloatArray, coefficients: FloatArray) -> None:
    size = len(coefficients)
    gradient = moment.copy()
    for p in range(size):
        for q in range(size):
            gradient[q] -= coefficients[p] * gram[p, q]
    for p in range(size):
        curvature = gram[p, p]
        if curvature <= 0.0:
            continue
        updated = max(0.0, coefficients[p] + gradient[p] / curvature)
        step = updated - coefficients[p]
        for q in range(size):
            gradient[q] -= step * gram[p, q]
        coefficients[p] = updated


def _integers(array: IntArray) -> IntArray:
    """As compiled for; a copy only if it is laid out otherwise."""
    return np.ascontiguousarray(array, dtype=np.int64)


def admit(
    values: FloatArray,
    possible: IntArray,
    available: IntArray,
    base: float,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
) -> tuple[IntArray, int, float, float]:
    """See `numpy_kernel.admit`."""
    verify, depth, value, ratio = _admit(
        np.ascontiguousarray(values),
        _integers(possible),
        _integers(available),
        base,
        np.ascontiguousarray(verify_seconds),
        np.ascontiguousarray(draft_seconds),
        _integers(depths),
    )
    return verify, int(depth), float(value), float(ratio)


def learn(
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    position_gradient: FloatArray,
    position_information: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> None:
    """See `numpy_kernel.learn`."""
    _learn(
        np.ascontiguousarray(hazard),
        _integers(verified),
        _integers(accepted),
        position_gradient,
        position_information,
        position_count,
        request_effect,
        request_information,
        prior_variance,
        discount,
    )


def absorb(
    gram: FloatArray, moment: FloatArray, features: FloatArray, target: float, weight: float
) -> None:
    """See `numpy_kernel.absorb`."""
    _absorb(gram, moment, features, target, weight)


def descend(gram: FloatArray, moment: FloatArray, coefficients: FloatArray) -> None:
    """See `numpy_kernel.descend`."""
    _descend(gram, moment, coefficients)
