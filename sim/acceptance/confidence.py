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
from adaptive_spec.sim.acceptance.data import AcceptanceData, hazards
from adaptive_spec.step import FloatArray


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


def _base_hazards(data: AcceptanceData) -> FloatArray:
    """[depth] hazard over all positions; where nothing reaches, that of the position before."""
    base, reached = hazards(data.accepted.astype(np.int64), data.depth)
    for position in range(1, data.depth):
        if not reached[position]:
            base[position] = base[position - 1]
    return np.clip(base, 1e-3, 1 - 1e-3)
