"""What each member's plan would have brought, once the step is over.

A step that verified K_i and accepted A_i answers for every other K'_i as well: up to K_i exactly
(min(A_i, K'_i) drafts, whatever else was planned), and beyond it where a draft was rejected
(still A_i). Only K'_i > K_i = A_i is open; there the shared posterior says what to expect. So every
member is scored in every step, and by what happened, not by the model it may be wrong about.
Seconds are the shared cost model's, for all alike.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray, IntArray


def tokens_in_hindsight(
    plans: IntArray, verified: IntArray, accepted: IntArray, hazard: FloatArray
) -> FloatArray:
    """[M] tokens that the batch would have emitted.

    Args:
        plans: [M, B] K'_i of each member.
        verified: [B] K_i that ran.
        accepted: [B] A_i.
        hazard: [Kmax, B] of the shared posterior.
    """
    batch = hazard.shape[1]
    position = np.arange(len(hazard))[:, None]
    # Survival from the end of what was verified, where all of that was accepted.
    open_end = (position >= verified) & (accepted == verified)
    onward = np.cumprod(np.where(position < verified, 1.0, hazard), axis=0) * open_end
    expected = np.zeros((len(hazard) + 1, batch))
    np.cumsum(onward, axis=0, out=expected[1:])
    drafts = np.minimum(plans, accepted) + expected[plans, np.arange(batch)]
    tokens: FloatArray = batch + drafts.sum(axis=1)
    return tokens
