"""Plans that keep every request's TPOT: T <= target_i (1 + S_i(K_i)).

A request that emits 1 + S_i(K_i) tokens in expectation, S_i the sum of its survivals, may take so
many times its target for one step; T <= target_i would cap the gap between bursts instead of the
time per token.

With T given, the constraint says which prefixes are compulsory: the least K_i with
1 + S_i(K_i) >= T / target_i. So for each depth D and number m of drafts, T is known, the compulsory
drafts are known, and the most valuable others fill up to m: exact, because values never rise
along a request. Pairs (D, m) are tried from the best unconstrained ratio downwards until none can
beat the best plan found, so most calls look at a few. After 48 in order, which only larger
batches have, they are tried with growing gaps, and the plan may be slightly less than the best.
If no plan keeps all targets, the one with the smallest T is taken.
"""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.step import BoolArray, FloatArray, IntArray

_TRIED_IN_ORDER = 48
"""Pairs (D, m) looked at one by one; after them, in large batches, with growing gaps."""


class TpotTargets(msgspec.Struct, frozen=True, eq=False):
    """What the requests of a batch ask for.

    Attributes:
        survival: [Kmax, B] s_ij, without weights.
        target: [B] seconds per output token; inf where none.
    """

    survival: FloatArray
    target: FloatArray

    def kept(self, verify: IntArray, seconds: float) -> bool:
        """Does every request keep its target with these K_i [B] in a step of so many seconds?"""
        return bool((seconds <= self.longest()[verify, np.arange(len(verify))]).all())

    def longest(self) -> FloatArray:
        """[Kmax + 1, B] the longest step that keeps each request's target, by its K."""
        tokens = np.ones((len(self.survival) + 1, self.survival.shape[1]))
        np.cumsum(self.survival, axis=0, out=tokens[1:])
        tokens[1:] += 1.0
        result: FloatArray = self.target * tokens * (1.0 + 1e-12)
        return result


class CappedPlan(msgspec.Struct, frozen=True, eq=False):
    """K_i [B], D, the value of the admitted drafts, and whether all targets are kept."""

    verify: IntArray
    draft_depth: int
    value: float
    kept: bool


def best_capped(
    values: FloatArray,
    base: float,
    limit: IntArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
    targets: TpotTargets,
    *,
    given_depth: bool = False,
) -> CappedPlan:
    """The best ratio over plans with free K_i that keep all targets.

    Args:
        values: [Kmax, B] w_i s_ij, not increasing along axis 0.
        base: sum of the weights.
        limit: [B] most drafts of each request.
        verify_seconds: [M + 1] verify time with m drafts.
        draft_seconds: [Kmax + 1] draft time by depth.
        depths: D to choose from; K_i <= D unless `given_depth`.
        targets: of the requests.
        given_depth: D is for the step after this one and does not limit K_i.
    """
    kmax, _ = values.shape
    position = np.arange(kmax)[:, None]
    ratios, depth_of, count_of = [], [], []
    for depth in depths.tolist():
        most = limit if given_depth else np.minimum(limit, depth)
        eligible = np.sort(values[position < most])[::-1]
        total = np.concatenate([[0.0], np.cumsum(eligible)])
        ratios.append((base + total) / (verify_seconds[: len(total)] + draft_seconds[depth]))
        depth_of.append(np.full(len(total), depth))
        count_of.append(np.arange(len(total)))
    ratio = np.concatenate(ratios)
    order = np.argsort(-ratio, kind="stable")
    depth_at, count_at = np.concatenate(depth_of)[order], np.concatenate(count_of)[order]
    best: CappedPlan | None = None
    best_ratio = -np.inf
    longest = targets.longest()
    if _possible(limit, verify_seconds, draft_seconds, depths, longest):
        for place in _places(len(order)):
            if ratio[order[place]] <= best_ratio:
                break
            depth, m = int(depth_at[place]), int(count_at[place])
            seconds = float(verify_seconds[m] + draft_seconds[depth])
            most = limit if given_depth else np.minimum(limit, depth)
            least = _compulsory(longest, seconds)
            spare = m - int(least.sum())
            if spare < 0 or (least > most).any():
                continue
            verify = _filled(values, least, most, spare)
            value = float(np.sum(values, where=position < verify))
            if (base + value) / seconds > best_ratio:
                best_ratio = (base + value) / seconds
                best = CappedPlan(verify, depth, value, True)
    return best or _quickest(values, limit, verify_seconds, draft_seconds, depths, given_depth)


def _places(count: int) -> list[int]:
    """Places to look at in a list of so many: all at first, then with growing gaps."""
    places, at = [], 0.0
    while at < count:
        places.append(int(at))
        at += max(1.0, at / _TRIED_IN_ORDER)
    return places


def _compulsory(longest: FloatArray, seconds: float) -> IntArray:
    """[B] the least K_i with which each request keeps its target; Kmax + 1: no K does."""
    enough: BoolArray = seconds <= longest
    least: IntArray = np.where(enough[-1], enough.argmax(axis=0), len(enough)).astype(np.int64)
    return least


def _possible(
    limit: IntArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
    longest: FloatArray,
) -> bool:
    """Could each request alone keep its target in the shortest step there is?"""
    shortest = verify_seconds[: int(limit.sum()) + 1].min() + draft_seconds[depths].min()
    return bool((_compulsory(longest, float(shortest)) <= limit).all())


def _filled(values: FloatArray, least: IntArray, most: IntArray, spare: int) -> IntArray:
    """The compulsory drafts and the `spare` most valuable others; ties as in the planner."""
    kmax, batch = values.shape
    position = np.arange(kmax)[:, None]
    free = (position >= least) & (position < most)
    keys = np.where(free, -values, np.inf).ravel()
    chosen = np.argsort(keys, kind="stable")[:spare] % max(batch, 1)
    verify: IntArray = least + np.bincount(chosen, minlength=batch)
    return verify


def _quickest(
    values: FloatArray,
    limit: IntArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
    given_depth: bool,
) -> CappedPlan:
    """The shortest step there is, with as few drafts as that takes."""
    best: tuple[float, int, int] | None = None
    for depth in depths.tolist():
        most = limit if given_depth else np.minimum(limit, depth)
        m = int(np.argmin(verify_seconds[: int(most.sum()) + 1]))
        found = (float(verify_seconds[m] + draft_seconds[depth]), depth, m)
        best = found if best is None else min(best, found)
    assert best is not None
    _, depth, m = best
    most = limit if given_depth else np.minimum(limit, depth)
    verify = _filled(values, np.zeros_like(limit), most, m)
    value = float(np.sum(values, where=np.arange(len(values))[:, None] < verify))
    return CappedPlan(verify, depth, value, False)
