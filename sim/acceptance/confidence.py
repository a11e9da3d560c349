"""A synthetic confidence signal of stated quality, for acceptance data that has none.

The binormal model: a draft that would be accepted shows x ~ N(+d/2, 1), one that would not
x ~ N(-d/2, 1), with d = sqrt(2) * inverse normal of the AUC, so that AUC is exactly what x achieves
between the two at each draft position. The signal handed out is

    max_prob = P(accepted | x) = logistic(logit(base hazard of the position) + d x)

which by Bayes' rule is calibrated: among drafts that show p, a share p is accepted.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.step_statistics import hazards
from adaptive_spec.step import FloatArray

_BINS = 20


def with_confidence(data: AcceptanceData, *, auc: float, seed: int) -> AcceptanceData:
    """The same data with a made confidence at every draft position; any it had is replaced.

    A token drafted on the true text shows the same x whichever step drafts it. Past the first
    rejection no label exists: it is drawn from the base hazard, anew for each step. The base hazard
    is that of all positions of the data, so in a replay, whose steps begin more often in hard text,
    the signal is slightly too confident, as a real drafter's is.

    Args:
        data: chains or trees; for trees the position is the level.
        auc: 0.5 (no information) to 1 (excluded).
        seed: of all draws; same arguments, same signal.

    Raises DataError for an AUC outside [0.5, 1).
    """
    if not 0.5 <= auc < 1:
        raise DataError(f"AUC must be at least 0.5 and below 1, got {auc}")
    separation = 2**0.5 * NormalDist().inv_cdf(auc)
    random = np.random.default_rng(seed)
    base = _base_hazards(data)
    token_noise = random.standard_normal(len(data.accepted) + data.depth)
    confidence = np.empty((len(data.accepted), data.depth), dtype=np.float32)
    for position in range(data.depth):
        on_text = data.accepted >= position
        hazard = base[position]
        drawn = random.random(len(on_text)) < hazard
        fresh = random.standard_normal(len(on_text))
        label = np.where(on_text, data.accepted > position, drawn)
        noise = np.where(on_text, token_noise[position : position + len(on_text)], fresh)
        x = np.where(label, separation / 2, -separation / 2) + noise
        confidence[:, position] = 1 / (
            1 + np.exp(-(np.log(hazard / (1 - hazard)) + separation * x))
        )
    return replace(
        data,
        source=f"{data.source}; synthetic confidence, AUC {auc:g}",
        confidence=confidence,
    )


def measured_auc(data: AcceptanceData, position: int) -> float:
    """AUC of the confidence at a draft position (from 0) for telling accepted drafts from others.

    Only steps that reach the position count, one starting at each output position. nan if all or
    none of them are accepted. Raises ValueError without a confidence.
    """
    shown, accepted = _shown(data, position)
    order = np.argsort(shown, kind="stable")
    ranked = shown[order]
    # Equal values share the mean of their ranks.
    rank = (
        np.searchsorted(ranked, ranked, side="left")
        + np.searchsorted(ranked, ranked, side="right")
        + 1
    ) / 2
    kept = accepted[order]
    yes, no = np.count_nonzero(kept), np.count_nonzero(~kept)
    if not yes or not no:
        return float("nan")
    return float((rank[kept].sum() - yes * (yes + 1) / 2) / (yes * no))


def calibration_error(data: AcceptanceData, position: int) -> float:
    """Expected calibration error at a draft position: |confidence - share accepted|, in 20 bins.

    Counts steps as `measured_auc` does. nan if no step shows a confidence there.
    """
    shown, accepted = _shown(data, position)
    if not len(shown):
        return float("nan")
    bins = np.minimum((shown * _BINS).astype(np.int64), _BINS - 1)
    gaps = np.bincount(bins, weights=shown - accepted, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(shown))


def _shown(
    data: AcceptanceData, position: int
) -> tuple[FloatArray, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Confidence at a position of the steps that reach it, and whether the draft was accepted."""
    if data.confidence is None:
        raise ValueError(f"{data.name} has no confidence")
    if not 0 <= position < data.depth:
        raise ValueError(f"position {position} leaves 0..{data.depth - 1}")
    column = data.confidence[:, position].astype(np.float64)
    counted = (data.accepted >= position) & ~np.isnan(column)
    return column[counted], data.accepted[counted] > position


def _base_hazards(data: AcceptanceData) -> FloatArray:
    """[depth] hazard over all positions; where nothing reaches, that of the position before."""
    base, reached = hazards(data.accepted.astype(np.int64), data.depth)
    for position in range(1, data.depth):
        if not reached[position]:
            base[position] = base[position - 1]
    return np.clip(base, 1e-3, 1 - 1e-3)
