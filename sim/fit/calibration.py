"""Calibration and ranking quality of predicted probabilities, by draft position."""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.step import FloatArray, IntArray

BINS = 20


class PositionCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """Calibration of a head at one position, on requests held out of the fit.

    Attributes:
        position: position from 1; 0 stands for all together.
        drafts: drafts that reached the position.
        accepted: accepted fraction.
        predicted: mean prediction.
        ece: expected calibration error, see `calibration_error`.
        auc: area under the ROC curve; null where all drafts were accepted or none.
    """

    position: int
    drafts: int
    accepted: float
    predicted: float
    ece: float
    auc: float | None


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Calibration of both heads over the same held-out requests.

    Attributes:
        requests, held_out: numbers of fitted and of held-out requests.
        average: calibration of a model that uses only the position.
        history: calibration of the head that uses finished steps only.
        drafts: calibration of the head with draft signals, over the drafts that have signals.
        history_there: calibration of the history head over those same drafts.
    """

    requests: int
    held_out: int
    average: list[PositionCalibration]
    history: list[PositionCalibration]
    drafts: list[PositionCalibration] = []
    history_there: list[PositionCalibration] = []


def calibration_error(predicted: FloatArray, accepted: FloatArray) -> float:
    """Expected calibration error: sum over 20 equal bins of (n_b / n) |mean p - mean y|.

    Guo et al. 2017, "On calibration of modern neural networks", equation 3. nan if there is none.
    """
    if not len(predicted):
        return float("nan")
    bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=predicted - accepted, minlength=BINS)
    return float(np.abs(gaps).sum() / len(predicted))


def ranking_quality(predicted: FloatArray, accepted: FloatArray) -> float | None:
    """AUC: how often an accepted draft has the higher prediction; ties count half.

    None if all were accepted, or none.
    """
    yes = int(np.count_nonzero(accepted))
    no = len(accepted) - yes
    if not yes or not no:
        return None
    ordered = np.sort(predicted)
    low = np.searchsorted(ordered, predicted, side="left")
    high = np.searchsorted(ordered, predicted, side="right")
    rank = (low + high + 1) / 2  # equal predictions share the mean of their ranks
    return float((rank[accepted > 0].sum() - yes * (yes + 1) / 2) / (yes * no))


def calibration_by_position(
    predicted: FloatArray, accepted: FloatArray, position: IntArray
) -> list[PositionCalibration]:
    """Return the calibration of all drafts together (position 0), then of each position from 1."""
    rows = [_calibration(0, predicted, accepted)]
    for each in range(int(position.max(initial=-1)) + 1):
        here = position == each
        if here.any():
            rows.append(_calibration(each + 1, predicted[here], accepted[here]))
    return rows


def _calibration(position: int, predicted: FloatArray, accepted: FloatArray) -> PositionCalibration:
    auc = ranking_quality(predicted, accepted)
    return PositionCalibration(
        position=position,
        drafts=len(predicted),
        accepted=round(float(accepted.mean()), 4),
        predicted=round(float(predicted.mean()), 4),
        ece=round(calibration_error(predicted, accepted), 4),
        auc=None if auc is None else round(auc, 4),
    )
