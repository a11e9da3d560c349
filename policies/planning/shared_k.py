"""The planner where one K for the batch is needed, or runs faster, or D is chosen by other drafts.

An engine of level UNIFORM runs one K for the batch. With `Capability.ragged_penalty` p a batch
whose K differ takes 1 + p times as long: the best plan with one K and the best plan with several
are compared. With two sources of drafts, `Ahead` says what the drafter's next drafts are worth, and
D is chosen by it. The objective and its weights are those of `policies.planning.planner`.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.planning.planner import (
    Admission,
    Ahead,
    Planned,
    depths_of,
    is_ragged,
    worth,
)
from adaptive_spec.policies.planning.search import admit, rank, value_of
from adaptive_spec.step import BoolArray, Capability, FloatArray, IntArray, Level, StepContext


def plan_with_shared_k(
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
    weights = None if taking_part is None else taking_part.astype(np.float64)
    by_weights = [weights]
    if batch > 1:
        by_worth = token_worth(survival, verify_seconds, draft_seconds, capability, taking_part)
        by_weights = [by_worth, weights]
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
