"""How well predicted probabilities of acceptance are calibrated, and rank drafts."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray

BINS = 20


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
