"""The exact planner: which drafts to verify, and how deep to draft next.

It maximises expected emitted tokens per second of a step,

    (sum_i w_i + sum_i sum_{j <= K_i} w_i s_ij) / (T_verify(B + sum_i K_i) + T_draft(D)),

with s_ij the probability that the first j drafts of request i are all accepted (survival), w_i
the request's weight and D >= max K_i. Because s_ij never rises with j, the m most valuable
drafts always form prefixes, so it is enough to sort all w_i s_ij once and to look at every depth
D and every number m of admitted drafts. That is exact for any T: rising, a staircase of captured
graphs, or not monotone at all; a search that stops at the first fall is not. Ties go to fewer
drafts, then to the shallower position, then to request order, so that every rank that plans
from the same numbers plans the same.

Two decisions come out of one sort: D for the next step, over the drafts the next step could use,
and K_i for this step, over the drafts at hand, with the time of drafting to D counted.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from adaptive_spec.kernels import active_kernel
from adaptive_spec.values import Capability, FloatArray, IntArray, Level


class Admission(msgspec.Struct, frozen=True, eq=False):
    """What the planner chose.

    Attributes:
        verify: [B] K_i.
        draft_depth: D.
        tokens: expected value of the step, sum of w_i (1 + sum of survivals).
        seconds: its predicted duration.
    """

    verify: IntArray
    draft_depth: int
    tokens: float
    seconds: float

    @property
    def goodput(self) -> float:
        """Expected (weighted) tokens per second."""
        return self.tokens / self.seconds


def best_admission(
    values: FloatArray,
    weights: FloatArray,
    possible: IntArray,
    available: IntArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    capability: Capability,
) -> Admission:
    """The best plan an engine of this capability can run.

    Args:
        values: [Kmax, B] w_i s_ij, float64, C-contiguous, not increasing along axis 0.
        weights: [B] w_i >= 0.
        possible: [B] drafts the next step could use, 0..Kmax.
        available: [B] drafts that can be verified now, 0..Kmax.
        verify_seconds: [M + 1] verify time with m drafts, m = 0..B * Kmax, padding included.
        draft_seconds: [Kmax + 1] draft time by depth.
        capability: granularity and ladder.

    The result is optimal for ``possible == available``; where they differ (the drafts at hand
    are fewer than the next step's) each of the two decisions is optimal given the other's depth.
    """
    base = _total(weights)
    if capability.level is Level.UNIFORM:
        return _best_uniform(
            values, base, possible, available, verify_seconds, draft_seconds, capability
        )
    if capability.level is Level.VERIFY:
        depths = np.array([capability.max_draft_tokens], dtype=np.int64)
    else:
        depths = np.array(capability.uniform_values, dtype=np.int64)
    ragged_seconds = verify_seconds
    if capability.ragged_penalty > 0.0:
        ragged_seconds = verify_seconds * (1.0 + capability.ragged_penalty)
    verify, depth = active_kernel().admit(
        values, possible, available, base, ragged_seconds, draft_seconds, depths
    )
    tokens = base + value_of(values, verify)
    seconds = float(ragged_seconds[int(verify.sum())] + draft_seconds[depth])
    ragged = Admission(verify, depth, tokens, seconds)
    if capability.ragged_penalty <= 0.0:
        return ragged
    uniform = _best_uniform(
        values, base, possible, available, verify_seconds, draft_seconds, capability
    )
    return uniform if uniform.goodput >= ragged.goodput else ragged


def _best_uniform(
    values: FloatArray,
    base: float,
    possible: IntArray,
    available: IntArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    capability: Capability,
) -> Admission:
    """One K for the batch; requests with fewer drafts take what they have."""
    penalty = 1.0 + capability.ragged_penalty

    def duration(verify: IntArray) -> float:
        seconds = float(verify_seconds[int(verify.sum())])
        uniform = verify.size == 0 or verify.min() == verify.max()
        return seconds if uniform else seconds * penalty

    def best(limit: IntArray, draft: Callable[[int], float]) -> int:
        chosen, top = capability.uniform_values[0], -np.inf
        for k in capability.uniform_values:
            verify = np.minimum(limit, k)
            score = (base + value_of(values, verify)) / (duration(verify) + draft(k))
            if score > top:
                chosen, top = k, score
        return chosen

    if capability.level is Level.VERIFY:
        depth = capability.max_draft_tokens
    else:
        depth = best(possible, lambda k: float(draft_seconds[k]))
    k = best(available, lambda _: float(draft_seconds[depth]))
    verify = np.minimum(available, k)
    tokens = base + value_of(values, verify)
    return Admission(verify, depth, tokens, duration(verify) + float(draft_seconds[depth]))


def value_of(values: FloatArray, verify: IntArray) -> float:
    """Sum of values [Kmax, B] at positions below verify [B]."""
    admitted = np.arange(len(values))[:, None] < verify
    return float(np.sum(values, where=admitted))


def _total(weights: FloatArray) -> float:
    return float(np.cumsum(weights)[-1]) if weights.size else 0.0
