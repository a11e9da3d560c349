"""The compiled loops about the drafter's confidence; part of `numba_kernel`, see `numpy_signal`."""

from __future__ import annotations

import numba
import numpy as np

from adaptive_spec.kernels.layout import integers
from adaptive_spec.step import BoolArray, FloatArray, IntArray

_F1 = numba.float64[::1]
_F2 = numba.float64[:, ::1]
_I1 = numba.int64[::1]
_B1 = numba.boolean[::1]
_B2 = numba.boolean[:, ::1]


@numba.njit(
    numba.types.Tuple((_B1, _B1))(
        numba.int64,
        _F1,
        numba.float64,
        numba.float64,
        _F2,
        _F1,
        _F1,
        numba.float64,
        _B1,
        _F1,
        _B1,
    ),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _judge(
    position: int,
    odds_against: FloatArray,
    low: float,
    high: float,
    mean_hazard: FloatArray,
    told: FloatArray,
    draft_prices: FloatArray,
    pass_price: float,
    drafting: BoolArray,
    survival: FloatArray,
    extending: BoolArray,
) -> tuple[BoolArray, BoolArray]:
    kmax, batch = mean_hazard.shape
    admitted = np.empty(batch, np.bool_)
    going = np.empty(batch, np.bool_)
    exploring = False
    for i in range(batch):
        hazard = 1.0 / (1.0 + odds_against[i])
        if np.isnan(hazard):
            hazard = mean_hazard[position, i]
        else:
            hazard = low if hazard < low else hazard
            hazard = high if hazard > high else hazard
        survival[i] *= hazard
        worth = survival[i] >= draft_prices[position]
        admitted[i] = drafting[i] and (worth or extending[i])
        going[i] = drafting[i] and worth
        extending[i] = extending[i] and worth
        exploring = exploring or (extending[i] and going[i])
    if exploring:
        return admitted, going
    after = np.ones(batch, np.float64)
    total = 0.0
    for j in range(position + 1, kmax):
        gain = 0.0
        price = draft_prices[j]
        most = max(1.0 - price, 0.0)
        for i in range(batch):
            if going[i]:
                after[i] *= mean_hazard[j, i]
                chance = survival[i] * after[i]
                won = max(chance - price, 0.0)
                gain += won + told[j] * (chance * most - won)
        total += gain - pass_price
        if total > 0.0:
            return admitted, going
    going[:] = False
    return admitted, going


@numba.njit(
    numba.types.Tuple((_F2, _F2, numba.boolean))(_F2, _I1, _I1, _F2, _F2),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _passed_over(
    signal: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    hazard: FloatArray,
    of_history: FloatArray,
) -> tuple[FloatArray, FloatArray, bool]:
    kmax, batch = hazard.shape
    missed = np.zeros((kmax, batch), np.float64)
    uncertain = np.zeros((kmax, batch), np.float64)
    anything = False
    for i in range(batch):
        if accepted[i] < verified[i]:
            continue
        reached = 1.0
        for j in range(max(verified[i], 0), kmax):
            if not np.isnan(signal[j, i]):
                before = of_history[j, i]
                missed[j, i] = reached * (hazard[j, i] - before)
                uncertain[j, i] = reached * before * (1.0 - before)
                anything = True
            reached *= hazard[j, i]
    return missed, uncertain, anything


@numba.njit(
    numba.void(_F2, _F2, _F2, _I1, _F2, _F2, numba.float64, numba.float64, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _weigh(
    values: FloatArray,
    residual: FloatArray,
    information: FloatArray,
    classes: IntArray,
    weight: FloatArray,
    evidence: FloatArray,
    prior_evidence: float,
    evidence_limit: float,
    most: float,
) -> None:
    rows, batch = values.shape
    columns = weight.shape[1]
    gradient = np.empty(columns, np.float64)
    shown = np.empty(columns, np.float64)
    for r in range(rows):
        gradient[:] = 0.0
        shown[:] = 0.0
        for i in range(batch):
            value = values[r, i]
            if not np.isnan(value):
                column = classes[i] if len(classes) > 1 else classes[0]
                gradient[column] += value * residual[r, i]
                shown[column] += value * value * information[r, i]
        for c in range(columns):
            evidence[r, c] = min(evidence[r, c], evidence_limit) + shown[c]
            found = weight[r, c] + gradient[c] / (evidence[r, c] + prior_evidence)
            weight[r, c] = min(max(found, 0.0), most)


@numba.njit(
    numba.void(_F2, _F2, _F2, numba.float64, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _pool(
    own: FloatArray, evidence: FloatArray, weight: FloatArray, prior_evidence: float, pooling: float
) -> None:
    kmax, columns = own.shape
    shown = np.zeros(columns, np.float64)
    gathered = np.zeros(columns, np.float64)
    for j in range(kmax):
        for c in range(columns):
            shown[c] += evidence[j, c] * own[j, c]
            gathered[c] += evidence[j, c]
    all_shown = 0.0
    all_gathered = 0.0
    for c in range(columns):
        all_shown += shown[c]
        all_gathered += gathered[c]
    both = all_shown / (all_gathered + prior_evidence)
    for c in range(columns):
        pooled = (shown[c] + pooling * both) / (gathered[c] + pooling)
        for j in range(kmax):
            weight[j, c] = (evidence[j, c] * own[j, c] + pooling * pooled) / (
                evidence[j, c] + pooling
            )


@numba.njit(
    numba.void(_F2, _I1, _F2, _F2, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _follow_means(
    values: FloatArray, classes: IntArray, mean: FloatArray, count: FloatArray, memory: float
) -> None:
    rows, batch = values.shape
    columns = mean.shape[1]
    seen = np.empty(columns, np.float64)
    total = np.empty(columns, np.float64)
    for r in range(rows):
        seen[:] = 0.0
        total[:] = 0.0
        for i in range(batch):
            if not np.isnan(values[r, i]):
                column = classes[i] if len(classes) > 1 else classes[0]
                seen[column] += 1.0
                total[column] += values[r, i]
        for c in range(columns):
            count[r, c] = min(count[r, c] + seen[c], memory)
            mean[r, c] += total[c] / max(count[r, c], 1.0)


@numba.njit(_F1(_F2), nogil=True, error_model="numpy", boundscheck=False)
def _round_means(signal: FloatArray) -> FloatArray:
    kmax, batch = signal.shape
    result = np.empty(batch, np.float64)
    for i in range(batch):
        total = 0.0
        drafts = 0
        for j in range(kmax):
            if not np.isnan(signal[j, i]):
                total += signal[j, i]
                drafts += 1
        result[i] = total / drafts if drafts > 0 else np.nan
    return result


@numba.njit(
    numba.void(_F2, _F2, _B2, _F1, _F1, _F1, _F1, numba.float64),
    nogil=True,
    error_model="numpy",
    boundscheck=False,
)
def _tell(
    survival: FloatArray,
    given: FloatArray,
    known: BoolArray,
    prices: FloatArray,
    count: FloatArray,
    saved: FloatArray,
    span: FloatArray,
    memory: float,
) -> None:
    kmax, batch = survival.shape
    for j in range(kmax):
        price = prices[j]
        drafts = 0.0
        gained = 0.0
        most = 0.0
        for i in range(batch):
            if known[j, i]:
                least = max(price - survival[j, i], 0.0)
                drafts += 1.0
                gained += max(price - given[j, i], 0.0) - least
                most += max(price * (1.0 - survival[j, i]) - least, 0.0)
        held = min(1.0, memory / max(count[j], 1.0))
        count[j] = held * count[j] + drafts
        saved[j] = held * saved[j] + gained
        span[j] = held * span[j] + most


def judge(
    position: int,
    odds_against: FloatArray,
    low: float,
    high: float,
    mean_hazard: FloatArray,
    told: FloatArray,
    draft_prices: FloatArray,
    pass_price: float,
    drafting: BoolArray,
    survival: FloatArray,
    extending: BoolArray,
) -> tuple[BoolArray, BoolArray]:
    """See `numpy_signal.judge`."""
    kept: tuple[BoolArray, BoolArray] = _judge(
        position,
        odds_against,
        low,
        high,
        np.ascontiguousarray(mean_hazard),
        told,
        draft_prices,
        pass_price,
        np.ascontiguousarray(drafting),
        survival,
        extending,
    )
    return kept


def passed_over(
    signal: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    hazard: FloatArray,
    of_history: FloatArray,
) -> tuple[FloatArray, FloatArray, bool]:
    """See `numpy_signal.passed_over`."""
    found: tuple[FloatArray, FloatArray, bool] = _passed_over(
        np.ascontiguousarray(signal),
        integers(verified),
        integers(accepted),
        np.ascontiguousarray(hazard),
        np.ascontiguousarray(of_history),
    )
    return found


def weigh(
    values: FloatArray,
    residual: FloatArray,
    information: FloatArray,
    classes: IntArray,
    weight: FloatArray,
    evidence: FloatArray,
    prior_evidence: float,
    evidence_limit: float,
    most: float,
) -> None:
    """See `numpy_signal.weigh`."""
    _weigh(
        np.ascontiguousarray(values),
        np.ascontiguousarray(residual),
        np.ascontiguousarray(information),
        integers(classes),
        weight,
        evidence,
        prior_evidence,
        evidence_limit,
        most,
    )


def pool(
    own: FloatArray, evidence: FloatArray, weight: FloatArray, prior_evidence: float, pooling: float
) -> None:
    """See `numpy_signal.pool`."""
    _pool(own, evidence, weight, prior_evidence, pooling)


def follow_means(
    values: FloatArray, classes: IntArray, mean: FloatArray, count: FloatArray, memory: float
) -> None:
    """See `numpy_signal.follow_means`."""
    _follow_means(np.ascontiguousarray(values), integers(classes), mean, count, memory)


def round_means(signal: FloatArray) -> FloatArray:
    """See `numpy_signal.round_means`."""
    found: FloatArray = _round_means(np.ascontiguousarray(signal))
    return found


def tell(
    survival: FloatArray,
    given: FloatArray,
    known: BoolArray,
    prices: FloatArray,
    count: FloatArray,
    saved: FloatArray,
    span: FloatArray,
    memory: float,
) -> None:
    """See `numpy_signal.tell`."""
    _tell(
        np.ascontiguousarray(survival),
        np.ascontiguousarray(given),
        np.ascontiguousarray(known),
        prices,
        count,
        saved,
        span,
        memory,
    )
