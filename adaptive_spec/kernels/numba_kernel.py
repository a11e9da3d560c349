"""The inner loops compiled by numba, equal to `numpy_kernel` to the last bit.

Compiled for fixed types when this module is imported. No on-disk cache: numba's is a pickle.
"""

from __future__ import annotations

import numba
import numpy as np

from adaptive_spec.kernels.layout import integers
from adaptive_spec.kernels.numba_requests import follow as follow
from adaptive_spec.kernels.numba_requests import tally as tally
from adaptive_spec.kernels.numba_requests import worth as worth
from adaptive_spec.kernels.numba_signal import follow_means as follow_means
from adaptive_spec.kernels.numba_signal import judge as judge
from adaptive_spec.kernels.numba_signal import passed_over as passed_over
from adaptive_spec.kernels.numba_signal import pool as pool
from adaptive_spec.kernels.numba_signal import round_means as round_means
from adaptive_spec.kernels.numba_signal import tell as tell
from adaptive_spec.kernels.numba_signal import weigh as weigh
from adaptive_spec.step import FloatArray, IntArray

_F1 = numba.float64[::1]
_F2 = numba.float64[:, ::1]
_I1 = numba.int64[::1]
_RADIX_BITS = 8
_RADIX = 1 << _RADIX_BITS
_PASSES = 4
_REQUEST_BITS = 32
_REQUEST = (1 << _REQUEST_BITS) - 1
"""An item is (position << 32) | request: dividing by the batch size would take longer than all
the rest."""


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
                item[at] = (j << _REQUEST_BITS) | i
                # Adding zero turns -0.0 into 0.0, whose bits sort as a number does.
                key32[at] = np.float32(values[j, i]) + np.float32(0.0)
                at += 1
    # The complement, so that rising digits are falling values.
    key = ~key32.view(np.uint32)
    place = np.zeros((_PASSES, _RADIX), np.int64)
    for n in range(count):
        bits = np.int64(key[n])
        for digit in range(_PASSES):
            place[digit, (bits >> (digit * _RADIX_BITS)) & (_RADIX - 1)] += 1
    other_item = np.empty(count, np.int64)
    other_key = np.empty(count, np.uint32)
    for digit in range(_PASSES):
        shift = digit * _RADIX_BITS
        if count == 0 or place[digit, (np.int64(key[0]) >> shift) & (_RADIX - 1)] == count:
            continue  # all have this digit
        before = 0
        for value in range(_RADIX):
            here = place[digit, value]
            place[digit, value] = before
            before += here
        for n in range(count):
            bits = (np.int64(key[n]) >> shift) & (_RADIX - 1)
            to = place[digit, bits]
            other_item[to] = item[n]
            other_key[to] = key[n]
            place[digit, bits] = to + 1
        item, other_item = other_item, item
        key, other_key = other_key, key
    ordered = np.empty(count, np.float64)
    for n in range(count):
        ordered[n] = values[item[n] >> _REQUEST_BITS, item[n] & _REQUEST]
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
    batch = values.shape[1]
    limit = np.empty(batch, np.int64)
    for i in range(batch):
        limit[i] = max(possible[i], available[i])
    item, ordered = _descending(values, limit)

    # Each depth's items are those of the next deeper one, less its deepest position.
    position = np.empty(len(item), np.int64)
    value_at = np.empty(len(item), np.float64)
    count = 0
    for n in range(len(item)):
        position[count] = item[n] >> _REQUEST_BITS
        value_at[count] = ordered[n]
        count += int(position[count] < possible[item[n] & _REQUEST])
    top = np.empty(len(depths), np.float64)
    for index in range(len(depths) - 1, -1, -1):
        depth = depths[index]
        drafting = draft_seconds[depth]
        kept = 0
        for n in range(count):
            at = position[n]
            position[kept] = at
            value_at[kept] = value_at[n]
            kept += int(at < depth)
        count = kept
        total = 0.0
        best = base / (verify_seconds[0] + drafting)
        for n in range(count):
            total += value_at[n]
            score = (base + total) / (verify_seconds[n + 1] + drafting)
            best = score if score > best else best
        top[index] = best
    next_step = -np.inf
    best_depth = depths[0]
    for index in range(len(depths)):
        if top[index] > next_step:
            next_step = top[index]
            best_depth = depths[index]

    drafting = draft_seconds[best_depth]
    best = base / (verify_seconds[0] + drafting)
    take = 0
    value = 0.0
    count = 0
    total = 0.0
    for n in range(len(item)):
        if item[n] >> _REQUEST_BITS >= available[item[n] & _REQUEST]:
            continue
        total += ordered[n]
        count += 1
        score = (base + total) / (verify_seconds[count] + drafting)
        if score > best:
            best = score
            take = count
            value = total
    verify = np.zeros(batch, np.int64)
    count = 0
    for n in range(len(item)):
        if count == take:
            break
        i = item[n] & _REQUEST
        if item[n] >> _REQUEST_BITS >= available[i]:
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


@numba.njit(numba.void(_F2, _F1, _F1, _F1), nogil=True, error_model="numpy", boundscheck=False)
def _descend(
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


@numba.njit(
    numba.void(_F2, numba.float64, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _share(odds_against: FloatArray, low: float, high: float) -> None:
    for j in range(odds_against.shape[0]):
        for i in range(odds_against.shape[1]):
            share = 1.0 / (odds_against[j, i] + 1.0)
            share = low if share < low else share
            odds_against[j, i] = high if share > high else share


@numba.njit(numba.void(_F2), nogil=True, error_model="numpy", boundscheck=False)
def _survive(hazard: FloatArray) -> None:
    for j in range(1, hazard.shape[0]):
        for i in range(hazard.shape[1]):
            hazard[j, i] *= hazard[j - 1, i]


@numba.njit(
    _F1(_F1, _F1, _F1, numba.float64, numba.float64, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _step_curve(
    tokens: FloatArray,
    knots: FloatArray,
    heights: FloatArray,
    last_slope: float,
    fixed: float,
    any_draft: float,
) -> FloatArray:
    curve = np.empty(len(tokens), np.float64)
    last = len(knots) - 1
    segment = 0
    slope = 0.0
    entered = -1
    for m in range(len(tokens)):
        while segment < last and tokens[m] >= knots[segment + 1]:
            segment += 1
        if segment != entered:
            entered = segment
            slope = last_slope
            if segment < last:
                slope = (heights[segment + 1] - heights[segment]) / (
                    knots[segment + 1] - knots[segment]
                )
        seconds = slope * (tokens[m] - knots[segment]) + heights[segment] + fixed
        if m > 0:
            seconds += any_draft
        curve[m] = 1e-6 if seconds < 1e-6 else seconds
    return curve


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
        integers(possible),
        integers(available),
        base,
        np.ascontiguousarray(verify_seconds),
        np.ascontiguousarray(draft_seconds),
        integers(depths),
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
        integers(verified),
        integers(accepted),
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


def descend(
    gram: FloatArray, moment: FloatArray, coefficients: FloatArray, least: FloatArray
) -> None:
    """See `numpy_kernel.descend`."""
    _descend(gram, moment, coefficients, least)


def hazards(logits: FloatArray, low: float, high: float) -> None:
    """See `numpy_kernel.hazards`."""
    np.negative(logits, out=logits)
    np.exp(logits, out=logits)  # numpy's own: another exp differs in the last bit
    _share(logits, low, high)


def survive(hazard: FloatArray) -> None:
    """See `numpy_kernel.survive`."""
    _survive(hazard)


def step_curve(
    tokens: FloatArray,
    knots: FloatArray,
    heights: FloatArray,
    last_slope: float,
    fixed: float,
    any_draft: float,
) -> FloatArray:
    """See `numpy_kernel.step_curve`."""
    curve: FloatArray = _step_curve(tokens, knots, heights, last_slope, fixed, any_draft)
    return curve
