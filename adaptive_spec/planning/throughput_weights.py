"""What a token of a request counts for: requests that accept much would soon be done anyway.

The work of a request is a number of tokens, not of steps. With r_i the tokens per second that a
batch would reach if all its requests were like i, each at its best K,

    w_i = 1 / r_i,    scaled so that these tokens together count as many as they are.

The planner maximises sum_i w_i (1 + sum_j s_ij) / T. With w = 1 that is the rate of the step at
hand. It spends too much on requests, or on stretches of one, that accept well: finished sooner,
they leave the batch to those that don't, and a draft left out there is made up in the next step.
What a batch needs for given work, a sum of n_i / (1 + S_i) steps of the same T, is least where each
request minimises its own seconds per token, and that is this w_i to first order (T linear in the
drafts, acceptance known). Whether to draft at all stays a question of the step itself: the first
draft of a step and each pass of the drafter are costs that all requests share.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.kernels import active_kernel
from adaptive_spec.step import Capability, FloatArray


def token_worth(
    survival: FloatArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    capability: Capability,
) -> FloatArray:
    """w_i [B] > 0.

    Args:
        survival: [Kmax, B] s_ij.
        verify_seconds: [B * Kmax + 1] verify time with m drafts.
        draft_seconds: [Kmax + 1] draft time by depth.
        capability: whether the engine steers the depth.
    """
    if not capability.steers_depth:
        draft_seconds = np.full_like(draft_seconds, draft_seconds[-1])
    uniform = verify_seconds[:: survival.shape[1]]
    return active_kernel().worth(survival, uniform + draft_seconds)
