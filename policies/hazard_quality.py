"""How good predicted hazards are: AUC and calibration error, online, from histograms.

Of every draft that was observed the prediction made before anything was learned from it is counted,
by position, in one of 40 bins: how many there were rejected, how many accepted, and the sum of what
was predicted. AUC is the share of pairs of an accepted and a rejected draft in which the accepted
one had the higher prediction, pairs of one bin counting half. The expected calibration error is
the mean distance of prediction and outcome over 20 bins (Guo et al. 2017, "On calibration of modern
neural networks").

Two predictions are kept apart: from finished rounds, and with the signal of the drafts themselves.
Drafts nobody verified are not there. Where verification follows confidence, those that are left
resemble each other, and both AUCs are lower than over all drafts.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from adaptive_spec.policies.kernels import Cube, Kernel, Limits, Matrix
from adaptive_spec.step import FloatArray, IntArray

Source = Literal["history", "confidence"]
"""What a prediction was made from: finished rounds; and the drafts' own signal besides."""

BINS = 40
"""Bins of predicted hazards."""
_CALIBRATION_BINS = BINS // 2
_KEPT = 1.0 - 1.0 / 2000.0
"""Share of the counts that a step leaves."""
_LEAST_OBSERVED = 50.0
"""Drafts, accepted and rejected together, before anything is said."""


@Kernel
def tally(hazard: Matrix, verified: Limits, accepted: Limits, counts: Cube) -> None:
    """Add the observed drafts of some steps to histograms of their predicted hazards, in place.

    `counts` [Kmax, bins, 3]: by position and bin of the hazard `[Kmax, B]` how many drafts were
    rejected, how many accepted, and the sum of their hazards. A request that verified K drafts and
    accepted A shows its first min(A + 1, K). Hazards outside 0 to 1 are left out.
    """
    kmax, bins, _ = counts.shape
    for j in range(kmax):
        for i in range(len(verified)):
            h = hazard[j, i]
            if j < min(accepted[i] + 1, verified[i]) and 0.0 <= h <= 1.0:
                place = min(int(h * bins), bins - 1)
                counts[j, place, 1 if j < accepted[i] else 0] += 1.0
                counts[j, place, 2] += h


class HazardQuality:
    """Histograms of predicted hazards against outcomes; the last steps count most."""

    def __init__(self, max_draft_tokens: int) -> None:
        self._counts: dict[Source, FloatArray] = {
            source: np.zeros((max_draft_tokens, BINS, 3)) for source in get_args(Source)
        }
        """[Kmax, BINS, 3]: rejected, accepted, sum of predictions."""

    def see(
        self, source: Source, hazard: FloatArray, verified: IntArray, accepted: IntArray
    ) -> None:
        """Count one step: hazards [Kmax, B] as predicted for it, drafts verified and accepted [B].

        Position j (from 0) was observed iff j < min(accepted + 1, verified).
        """
        self._counts[source] *= _KEPT
        tally(hazard, verified, accepted, self._counts[source])

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """JSON-compatible, by source: observations, `auc` and `ece` pooled and by position.

        None where there are too few observations, or only accepted or only rejected ones.
        """
        return {source: _figures(of) for source, of in self._counts.items() if of.any()}


def _figures(counts: FloatArray) -> dict[str, Any]:
    pooled = counts.sum(axis=0)
    return {
        "observations": round(float(pooled[:, :2].sum()), 1),
        "auc": auc(pooled),
        "ece": calibration_error(pooled),
        "auc_by_position": [auc(position) for position in counts],
        "ece_by_position": [calibration_error(position) for position in counts],
    }


def auc(counts: FloatArray) -> float | None:
    """AUC of counts [BINS, 3]."""
    rejected, accepted = counts[:, 0], counts[:, 1]
    pairs = float(rejected.sum() * accepted.sum())
    if rejected.sum() + accepted.sum() < _LEAST_OBSERVED or pairs <= 0.0:
        return None
    below = np.cumsum(rejected) - rejected
    return float(accepted @ (below + 0.5 * rejected)) / pairs


def calibration_error(counts: FloatArray) -> float | None:
    """Expected calibration error of counts [BINS, 3]."""
    coarse = counts.reshape(_CALIBRATION_BINS, -1, 3).sum(axis=1)
    observed = float(coarse[:, :2].sum())
    if observed < _LEAST_OBSERVED:
        return None
    return float(np.abs(coarse[:, 2] - coarse[:, 1]).sum()) / observed
