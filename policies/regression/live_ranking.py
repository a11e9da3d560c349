"""Selection of the drafts to verify by live confidence, within limits from finished steps.

Admitting drafts by highest survival, up to a number and down to a least survival that do not depend
on them, leaves sampled output unbiased: the admission of a draft depends only on draft
distributions at its own and shallower positions (DSpark, arXiv 2607.05147, appendix A). Survival
never rises with depth, so the admitted drafts are prefixes.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.step import FloatArray, IntArray

# Good steps come in bursts.
_ROOM = 2
"""Largest ratio of a live budget to the stale plan's drafts."""


def rank_live(values: FloatArray, available: IntArray, forecast: StepForecast) -> IntArray:
    """Return [B] K_i.

    Args:
        values: [Kmax, B] live survival, times the request's weight; not increasing in depth.
        available: [B] available drafts.
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
