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

from adaptive_spec.policies.kernels import kernel
from adaptive_spec.step import BoolArray, Capability, FloatArray


def _worth_loop(survival: FloatArray, seconds: FloatArray) -> FloatArray:
    kmax, batch = survival.shape
    result = np.empty(batch, np.float64)
    all_emitted = 0.0
    all_worth = 0.0
    for i in range(batch):
        tokens = 1.0
        emitted = 1.0
        best = 1.0 / seconds[0]
        for j in range(kmax):
            tokens += survival[j, i]
            pace = tokens / seconds[j + 1]
            if pace > best:
                best = pace
                emitted = tokens
        result[i] = 1.0 / best
        all_emitted += emitted
        all_worth += result[i] * emitted
    scale = all_emitted / all_worth
    for i in range(batch):
        result[i] *= scale
    return result


@kernel(
    "float64[:](float64[:, :], float64[:])",
    _worth_loop,
)
def worth(survival: FloatArray, seconds: FloatArray) -> FloatArray:
    """Return the weight [B] of a token of each request; see `policies.planning.throughput_weights`.

    Args:
        survival: [Kmax, B] s_ij.
        seconds: [Kmax + 1] of a step with K drafts for each request.
    """
    tokens = np.ones((len(survival) + 1, survival.shape[1]))
    tokens[1:] = survival
    np.cumsum(tokens, axis=0, out=tokens)
    pace = tokens / seconds[:, None]
    best = np.argmax(pace, axis=0)[None]
    emitted = np.take_along_axis(tokens, best, axis=0)[0]
    result: FloatArray = 1.0 / np.take_along_axis(pace, best, axis=0)[0]
    if result.size:
        result *= np.cumsum(emitted)[-1] / np.cumsum(result * emitted)[-1]
    return result


def token_worth(
    survival: FloatArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    capability: Capability,
    taking_part: BoolArray | None = None,
) -> FloatArray:
    """w_i [B] > 0, and 0 for requests that do not take part.

    Args:
        survival: [Kmax, B] s_ij.
        verify_seconds: [B * Kmax + 1] verify time with m drafts.
        draft_seconds: [Kmax + 1] draft time by depth.
        capability: whether the engine steers the depth.
        taking_part: [B] requests whose tokens count; None: all.
    """
    if not capability.steers_depth:
        draft_seconds = np.full_like(draft_seconds, draft_seconds[-1])
    number = survival.shape[1] if taking_part is None else int(taking_part.sum())
    weights = worth(survival, verify_seconds[::number][: len(draft_seconds)] + draft_seconds)
    return weights if taking_part is None else weights * taking_part
