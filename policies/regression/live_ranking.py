"""Which drafts at hand to verify, by live confidence, within limits set from finished steps.

Admitting the drafts with the highest survival, best first, up to a number and down to a least
survival that do not depend on them, leaves sampled output unbiased: whether a draft is admitted
depends on draft distributions at its own and shallower positions only (DSpark, arXiv 2607.05147,
appendix A). Survival never rises with depth, so what is admitted are prefixes.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.planning.step_forecast import StepForecast
from adaptive_spec.step import FloatArray, IntArray

_ROOM = 2
"""A live budget may exceed the stale plan's drafts by this factor: good steps come in bursts."""


def rank_live(values: FloatArray, available: IntArray, forecast: StepForecast) -> IntArray:
    """[B] K_i.

    Args:
        values: [Kmax, B] live survival, times the request's weight; not increasing in depth.
        available: [B] drafts at hand.
        forecast: from finished steps; it sets the number of drafts and the least survival.
    """
    batch = len(available)
    planned = int(forecast.best.verify.sum())
    budget = max(_ROOM * planned, planned + 1)
    eligible = (np.arange(len(values))[:, None] < available) & (values >= forecast.verify_price())
    if np.count_nonzero(eligible) > budget:
        flat = np.where(eligible, values, -1.0).ravel()
        # Ties go to the shallower position, then to request order.
        order = np.argsort(-flat, kind="stable")[:budget]
        chosen: IntArray = np.bincount(order % batch, minlength=batch).astype(np.int64)
        return chosen
    result: IntArray = np.count_nonzero(eligible, axis=0).astype(np.int64)
    return result
