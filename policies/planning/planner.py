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

**Weights.** The work of a request is a number of tokens, not of steps. With r_i the tokens per
second that a batch would reach if all its requests were like i, each at its best K,

    w_i = 1 / r_i,    scaled so that these tokens together count as many as they are.

The planner maximises sum_i w_i (1 + sum_j s_ij) / T. With w = 1 that is the rate of the step at
hand. It spends too much on requests, or on stretches of one, that accept well. These end sooner and
leave the batch to those that accept badly, and a draft left out of them is made in the next step.
For given work a batch needs a sum of n_i / (1 + S_i) steps of the same T. That sum is least where
each request minimises its own seconds per token, which is this w_i to first order (T linear in the
drafts, acceptance known). Whether to draft at all stays a question of the step itself: the first
draft of a step and each pass of the drafter are costs that all requests share.

An engine of level UNIFORM runs one K for the batch. With `Capability.ragged_penalty` p a batch
whose K differ takes 1 + p times as long: the best plan with one K and the best plan with several
are compared. With two sources of drafts, `Ahead` says what the drafter's next drafts are worth, and
D is chosen by it. Values are position-major, [Kmax, B].
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.policies.gaussian import dot
from adaptive_spec.policies.kernels import Integers, Kernel, Limits, Matrix, Rows, Vector
from adaptive_spec.policies.planning.search import best_admission, value_of
from adaptive_spec.step import BoolArray, Capability, FloatArray, IntArray, Level, StepContext


class Admission(msgspec.Struct, frozen=True, eq=False):
    """Best plan of a step.

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


class Ahead(NamedTuple):
    """Value of the drafter's next drafts, where some requests will not need them.

    Attributes:
        survival: [Kmax, B] expected tokens by position.
        more: [B] tokens that the next step is expected to emit besides, without these drafts.
    """

    survival: FloatArray
    more: FloatArray


NOTHING_AHEAD = Ahead(np.zeros((0, 0)), np.zeros(0))


@lru_cache(maxsize=64)
def engine_of(capability: Capability) -> tuple[IntArray, bool, bool, float]:
    """Return K of the ladder, and whether one K holds for the batch, D is steered, and p."""
    one_k, ladder = capability.level is Level.UNIFORM, np.array(capability.uniform_values)
    return ladder, one_k, capability.steers_depth, capability.ragged_penalty


def counted_rows(context: StepContext) -> BoolArray:
    """Return [B] whether the tokens of each request count."""
    taking_part = context.taking_part
    return _everybody(context.batch_size) if taking_part is None else taking_part


@lru_cache(maxsize=64)
def _everybody(batch: int) -> BoolArray:
    return np.ones(batch, dtype=np.bool_)


@Kernel
def best_plan(
    survival: Matrix,
    possible: Limits,
    available: Limits,
    verify_seconds: Vector,
    draft_seconds: Vector,
    ladder: Integers,
    one_k: bool,
    steers: bool,
    penalty: float,
    ahead: Matrix,
    more: Vector,
    taking_part: Rows,
    weights: Vector,
) -> tuple[Integers, int, float, float, float, bool]:
    """Choose K_i and D by the worth of tokens, or without it where that leaves no draft.

    Survival [Kmax, B] is s_ij; `ahead` and `more` are those of `Ahead`, empty without it;
    `taking_part` [B] says whose tokens count; `weights` [B] are overwritten with those that were
    used. The other arguments are those of `best_admission`.

    Returns K_i [B], D, the value of the step, its seconds, the tokens it is expected to emit, and
    whether the worth of tokens is part of the weights.
    """
    batch = survival.shape[1]
    number = int(np.sum(taking_part))
    weighted = number > 1
    while True:
        # An assignment of the whole array would be compiled for two seconds.
        for i in range(batch):
            weights[i] = 1.0 if taking_part[i] else 0.0
        if weighted:
            passes = draft_seconds if steers else np.full_like(draft_seconds, draft_seconds[-1])
            uniform = verify_seconds[::number][: len(draft_seconds)]
            weights *= worth(survival, uniform + passes)
        depths = ladder
        if len(ahead):
            verify, depth, value, seconds = best_admission(
                ahead * weights,
                dot(weights, 1.0 + more),
                possible,
                possible,
                verify_seconds,
                draft_seconds,
                ladder,
                one_k,
                steers,
                penalty,
            )
            depths = np.array([depth])
        verify, depth, value, seconds = best_admission(
            survival * weights,
            np.cumsum(weights)[-1],
            possible,
            available,
            verify_seconds,
            draft_seconds,
            depths,
            one_k,
            steers,
            penalty,
        )
        # Whether to speculate at all is decided by the step itself: costs that all requests share
        # are not part of the worth of tokens.
        if np.sum(verify) > 0 or (depth > 0 and steers) or not weighted:
            tokens = batch + value_of(survival, verify)
            return verify, depth, value, seconds, tokens, weighted
        weighted = False


@Kernel
def worth(survival: Matrix, seconds: Vector) -> Vector:
    """Return the weight [B] of a token of each request.

    Args:
        survival: [Kmax, B] s_ij.
        seconds: [Kmax + 1] of a step with K drafts for each request.
    """
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


def is_ragged(verify: IntArray) -> bool:
    """K differs between the requests."""
    return bool(verify.size) and bool(verify.min() != verify.max())
