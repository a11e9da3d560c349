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
hand. It spends too much on requests, or on stretches of one, that accept well: finished sooner,
they leave the batch to those that don't, and a draft left out there is made up in the next step.
For given work a batch needs a sum of n_i / (1 + S_i) steps of the same T. That sum is least where
each request minimises its own seconds per token, which is this w_i to first order (T linear in the
drafts, acceptance known). Whether to draft at all stays a question of the step itself: the first
draft of a step and each pass of the drafter are costs that all requests share.

The loops stand in `policies.planning.draft_kernels`. Values are position-major, [Kmax, B].
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.policies.planning.draft_kernels import (
    admit,
    best_plan,
    rank,
    value_of,
    worth,
)
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


class Planned(NamedTuple):
    """Best plan of a step, and how its tokens were weighed.

    Attributes:
        best: the plan.
        weights: [B] of each request's tokens, 0 for one that has opted out; None: all alike.
        tokens: that the step is expected to emit, each counted as one.
    """

    best: Admission
    weights: FloatArray | None
    tokens: float


def plan_step(
    context: StepContext,
    survival: FloatArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    ahead: Ahead | None = None,
) -> Planned:
    """Return the best plan of a step: by the worth of tokens, or without it if that drafts nothing.

    Whether to speculate at all is decided by the step itself: costs that all requests share are not
    part of the worth of tokens.

    Args:
        context: the step.
        survival: [Kmax, B] s_ij.
        verify_seconds: [B * Kmax + 1] verify time with m drafts.
        draft_seconds: [Kmax + 1] draft time by depth.
        ahead: what D is chosen by; None: `survival`, as drafts are alike from step to step.
    """
    capability, taking_part, batch = context.capability, context.taking_part, context.batch_size
    one_k = capability.level is Level.UNIFORM or capability.ragged_penalty > 0.0
    if ahead is None and not one_k:
        found: FloatArray = np.empty(batch)
        verify, depth, value, seconds, tokens, by_worth = best_plan(
            survival,
            context.draft_possible,
            context.draft_available,
            verify_seconds,
            draft_seconds,
            depths_of(capability),
            capability.steers_depth,
            _everybody(batch) if taking_part is None else taking_part,
            found,
        )
        best = Admission(verify, int(depth), float(value), float(seconds))
        return Planned(best, found if by_worth or taking_part is not None else None, float(tokens))
    weights = None if taking_part is None else taking_part.astype(np.float64)
    by_weights = [weights]
    if batch > 1:
        worth = token_worth(survival, verify_seconds, draft_seconds, capability, taking_part)
        by_weights = [worth, weights]
    for weights in by_weights:
        best = _plan_weighed(context, survival, weights, verify_seconds, draft_seconds, ahead)
        if best.verify.any() or (best.draft_depth and capability.steers_depth):
            break
    return Planned(best, weights, batch + value_of(survival, best.verify))


def _plan_weighed(
    context: StepContext,
    survival: FloatArray,
    weights: FloatArray | None,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    ahead: Ahead | None,
) -> Admission:
    possible, available = context.draft_possible, context.draft_available
    costs = verify_seconds, draft_seconds, context.capability
    depth = None
    if ahead is not None:
        each = np.ones(context.batch_size) if weights is None else weights
        values, base = ahead.survival * each, each * (1.0 + ahead.more)
        depth = best_admission(values, base, possible, possible, *costs).draft_depth
    values = survival if weights is None else survival * weights
    return best_admission(values, weights, possible, available, *costs, depth)


@lru_cache(maxsize=64)
def _everybody(batch: int) -> BoolArray:
    return np.ones(batch, dtype=np.bool_)


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


def best_admission(
    values: FloatArray,
    weights: FloatArray | None,
    possible: IntArray,
    available: IntArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    capability: Capability,
    depth: int | None = None,
) -> Admission:
    """The best plan an engine of this capability can run.

    Args:
        values: [Kmax, B] w_i s_ij, float64, C-contiguous, not increasing along axis 0.
        weights: [B] w_i >= 0; None: all 1.
        possible: [B] drafts the next step could use, 0..Kmax.
        available: [B] drafts that can be verified now, 0..Kmax.
        verify_seconds: [M + 1] verify time with m drafts, m = 0..B * Kmax, padding included.
        draft_seconds: [Kmax + 1] draft time by depth.
        capability: granularity and ladder.
        depth: D, where that is given.

    D is optimal for the next step. K_i is optimal for this one, given D: drafts at hand are paid
    for, so they may go deeper than the next step's. With ``available = min(possible, D)``, which
    is what an engine offers one step later, both together are the optimum over every plan.
    """
    search = _Search(values, weights, verify_seconds, draft_seconds, capability)
    depths = depths_of(capability) if depth is None else np.array([depth])
    if capability.level is Level.UNIFORM:
        depth = search.uniform(possible, depths).draft_depth
        return search.uniform(available, np.array([depth]))
    ragged, ratio = search.ragged(possible, available, depths)
    if capability.ragged_penalty <= 0.0:
        return ragged
    # Where a uniform batch runs a faster graph: the better of the best of either kind.
    uniform = search.uniform(possible, depths)
    depth = uniform.draft_depth if uniform.goodput >= ratio else ragged.draft_depth
    uniform = search.uniform(available, np.array([depth]))
    if depth != ragged.draft_depth:
        ragged, _ = search.ragged(possible, available, np.array([depth]))
    return uniform if uniform.goodput >= ragged.goodput else ragged


class _Search:
    """The two searches over one step's values and costs."""

    def __init__(
        self,
        values: FloatArray,
        weights: FloatArray | None,
        verify_seconds: FloatArray,
        draft_seconds: FloatArray,
        capability: Capability,
    ) -> None:
        self._values = values
        if weights is None:
            self._base = float(values.shape[1])
        else:
            self._base = float(np.cumsum(weights)[-1]) if weights.size else 0.0
        self._verify_seconds = verify_seconds
        self._draft_seconds = draft_seconds
        self._capability = capability
        self._penalty = 1.0 + capability.ragged_penalty

    def ragged(
        self, possible: IntArray, available: IntArray, depths: IntArray
    ) -> tuple[Admission, float]:
        """K_i free per request, at the time of a ragged batch; and the next step's ratio."""
        verify_seconds = self._verify_seconds
        if self._penalty > 1.0:
            verify_seconds = verify_seconds * self._penalty
        verify, depth, value, ratio = admit(
            *rank(self._values, np.maximum(possible, available)),
            possible,
            available,
            self._base,
            verify_seconds,
            self._draft_seconds,
            depths,
        )
        seconds = self._seconds(int(verify.sum()), is_ragged(verify))
        seconds += float(self._draft_seconds[depth])
        return Admission(verify, depth, self._base + value, seconds), ratio

    def uniform(self, limit: IntArray, depths: IntArray) -> Admission:
        """Return one K for the batch, less for requests that have fewer drafts.

        With several depths to choose from, K is drafted for and K <= D; with one, it is given.
        """
        same_depth = self._capability.level is Level.UNIFORM
        kmax = self._capability.max_draft_tokens
        choices = np.array(self._capability.uniform_values if same_depth else range(kmax + 1))
        admitted = np.arange(kmax)[:, None] < limit
        tokens, drafts = np.zeros(kmax + 1), np.zeros(kmax + 1, dtype=np.int64)
        np.cumsum(np.sum(self._values, axis=1, where=admitted), out=tokens[1:])
        np.cumsum(np.count_nonzero(admitted, axis=1), out=drafts[1:])
        least, most = int(limit.min(initial=kmax)), int(limit.max(initial=0))
        verify_seconds = np.array(
            [self._seconds(int(drafts[k]), least < min(most, k)) for k in choices.tolist()]
        )
        ratio = (self._base + tokens[choices])[:, None] / (
            verify_seconds[:, None] + self._draft_seconds[depths]
        )
        if len(depths) > 1:
            usable = choices[:, None] == depths if same_depth else choices[:, None] <= depths
            ratio = np.where(usable, ratio, -np.inf)
        row, column = divmod(int(np.argmax(ratio)), len(depths))
        k, depth = int(choices[row]), int(depths[column])
        return Admission(
            np.minimum(limit, k),
            depth,
            self._base + float(tokens[k]),
            float(verify_seconds[row] + self._draft_seconds[depth]),
        )

    def _seconds(self, drafts: int, ragged: bool) -> float:
        return float(self._verify_seconds[drafts]) * (self._penalty if ragged else 1.0)


def is_ragged(verify: IntArray) -> bool:
    """K differs between the requests."""
    return bool(verify.size) and bool(verify.min() != verify.max())


@lru_cache(maxsize=16)
def depths_of(capability: Capability) -> IntArray:
    """Return the depths D that the engine can run, ascending."""
    if not capability.steers_depth:
        return np.array([capability.max_draft_tokens], dtype=np.int64)
    return np.array(capability.uniform_values, dtype=np.int64)
