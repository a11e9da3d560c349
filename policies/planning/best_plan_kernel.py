"""The best plan of a step in one call, where K_i are free and a ragged batch costs nothing more."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel_of_kernels
from adaptive_spec.policies.planning.admission_kernels import admit, rank, value_of
from adaptive_spec.policies.planning.throughput_weights import worth
from adaptive_spec.step import BoolArray, FloatArray, IntArray


@kernel_of_kernels(
    "Tuple((int64[::1], int64, float64, float64, float64, boolean))(float64[:, ::1],"
    " int64[:], int64[:], float64[::1], float64[::1], int64[::1], boolean, boolean[:],"
    " float64[::1])"
)
def best_plan(
    survival: FloatArray,
    possible: IntArray,
    available: IntArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
    steers: bool,
    taking_part: BoolArray,
    weights: FloatArray,
) -> tuple[IntArray, int, float, float, float, bool]:
    """Choose K_i and D by the worth of tokens, or without it where that leaves no draft.

    Args:
        survival: [Kmax, B]
        possible: [B] drafts that the next step could use.
        available: [B] drafts that can be verified now.
        verify_seconds: [B * Kmax + 1]
        draft_seconds: [Kmax + 1]
        depths: D to choose from, ascending.
        steers: the engine steers the depth.
        taking_part: [B] requests whose tokens count.
        weights: [B] overwritten with the weights that were used.

    Returns K_i [B], D, the value of the step, its seconds, the tokens it is expected to emit, and
    whether the worth of tokens is part of the weights.
    """
    batch = survival.shape[1]
    number = int(np.count_nonzero(taking_part))
    limit = np.maximum(possible, available)
    weighted = number > 1
    while True:
        weights[:] = taking_part
        if weighted:
            passes = draft_seconds if steers else np.full_like(draft_seconds, draft_seconds[-1])
            uniform = verify_seconds[::number][: len(draft_seconds)]
            weights *= worth(survival, uniform + passes)
        base = np.cumsum(weights)[-1]
        position, request, value = rank(survival * weights, limit)
        verify, depth, more, _ = admit(
            position,
            request,
            value,
            possible,
            available,
            base,
            verify_seconds,
            draft_seconds,
            depths,
        )
        drafts = np.sum(verify)
        # Whether to speculate at all is decided by the step itself: costs that all requests share
        # are not part of the worth of tokens.
        if drafts > 0 or (depth > 0 and steers) or not weighted:
            seconds = verify_seconds[drafts] + draft_seconds[depth]
            tokens = batch + value_of(survival, verify)
            return verify, depth, base + more, seconds, tokens, weighted
        weighted = False
