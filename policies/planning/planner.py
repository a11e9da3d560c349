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

Three loops are compiled: `rank` sorts the drafts, `admit` takes the best prefix at the best depth,
`best_plan` does both where K_i are free and a ragged batch costs nothing more. Values are
position-major, [Kmax, B].
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np

from adaptive_spec.policies.kernels import BOOLS, INTS, kernel, kernel_of_kernels
from adaptive_spec.step import BoolArray, Capability, FloatArray, IntArray, Level


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
    """Return the weight [B] of a token of each request.

    Args:
        survival: [Kmax, B] s_ij.
        seconds: [Kmax + 1] of a step with K drafts for each request.
    """
    tokens = np.ones((len(survival) + 1, survival.shape[1]))
    for j in range(len(survival)):
        np.add(tokens[j], survival[j], out=tokens[j + 1])
    pace = tokens / seconds[:, None]
    emitted = tokens[np.argmax(pace, axis=0), np.arange(tokens.shape[1])]
    result: FloatArray = 1.0 / np.maximum.reduce(pace, axis=0)
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


_MANY = 768
"""Drafts from which counting their bits is faster than comparing them."""


def _rank_loop(values: FloatArray, limit: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    kmax, batch = values.shape
    count = 0
    for i in range(batch):
        count += int(min(limit[i], kmax))
    keys = np.empty(count, np.float32)
    items = np.empty(count, np.int64)
    at = 0
    for j in range(kmax):
        for i in range(batch):
            if j < limit[i]:
                items[at] = j * batch + i
                # Adding zero turns -0.0 into 0.0, whose bits sort as a number does.
                keys[at] = np.float32(values[j, i]) + np.float32(0.0)
                at += 1
    # One integer per draft: falling value first, then position, then request.
    bits = keys.view(np.int32)
    if count < _MANY:
        for n in range(count):
            items[n] |= np.int64(-bits[n]) << 32
        items = np.sort(items)
    else:  # A radix sort by 3 x 11 bits; it is stable, and the items are in order already.
        starts = np.zeros((3, 2048), np.int64)
        for n in range(count):
            key = np.int64(0x7FFFFFFF) - np.int64(bits[n])
            items[n] |= key << 32
            for digit in range(3):
                starts[digit, (key >> 11 * digit) & 2047] += 1
        others = np.empty(count, np.int64)
        for digit in range(3):
            start = 0
            for n in range(2048):
                start += starts[digit, n]
                starts[digit, n] = start - starts[digit, n]
            for n in range(count):
                key = (items[n] >> (32 + 11 * digit)) & 2047
                others[starts[digit, key]] = items[n]
                starts[digit, key] += 1
            items, others = others, items
    position = np.empty(count, np.int64)
    request = np.empty(count, np.int64)
    ordered = np.empty(count, np.float64)
    for n in range(count):
        item = items[n] & 0xFFFFFFFF
        position[n] = item // batch
        request[n] = item - position[n] * batch
        ordered[n] = values[position[n], request[n]]
    return position, request, ordered


@kernel(
    f"Tuple((int64[::1], int64[::1], float64[::1]))(float64[:, ::1], {INTS})",
    _rank_loop,
)
def rank(values: FloatArray, limit: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Sort drafts by falling value, which is compared at 32 bits.

    Args:
        values: [Kmax, B] >= 0.
        limit: [B] only the first drafts of each request are sorted.

    Returns position j [N], request i [N] and value [N] of each, with N = sum of the limits.
    """
    batch = values.shape[1]
    position = np.arange(len(values))[:, None]
    keys = np.where(position < limit, -values, np.inf).astype(np.float32).ravel()
    order = np.argsort(keys, kind="stable")[: int(np.minimum(limit, len(values)).sum())]
    at, request = np.divmod(order, max(batch, 1))
    return at, request, values[at, request]


def _admit_loop(
    position: IntArray,
    request: IntArray,
    value: FloatArray,
    possible: IntArray,
    available: IntArray,
    base: float,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
) -> tuple[IntArray, int, float, float]:
    # Each depth's drafts are those of the next deeper one, less its deepest position.
    usable = np.empty(len(position), np.int64)
    value_at = np.empty(len(position), np.float64)
    count = 0
    for n in range(len(position)):
        usable[count] = position[n]
        value_at[count] = value[n]
        count += int(position[n] < possible[request[n]])
    top = np.empty(len(depths), np.float64)
    for index in range(len(depths) - 1, -1, -1):
        depth = depths[index]
        drafting = draft_seconds[depth]
        kept = 0
        for n in range(count):
            at = usable[n]
            usable[kept] = at
            value_at[kept] = value_at[n]
            kept += int(at < depth)
        count = kept
        total = 0.0
        best = base / (verify_seconds[0] + drafting)
        for n in range(count):
            total += value_at[n]
            score = (base + total) / (verify_seconds[n + 1] + drafting)
            best = score if score > best else best
        top[index] = best
    next_step = -np.inf
    best_depth = depths[0]
    for index in range(len(depths)):
        if top[index] > next_step:
            next_step = top[index]
            best_depth = depths[index]

    drafting = draft_seconds[best_depth]
    best = base / (verify_seconds[0] + drafting)
    take = 0
    admitted_value = 0.0
    count = 0
    total = 0.0
    for n in range(len(position)):
        if position[n] >= available[request[n]]:
            continue
        total += value[n]
        count += 1
        score = (base + total) / (verify_seconds[count] + drafting)
        if score > best:
            best = score
            take = count
            admitted_value = total
    verify = np.zeros(len(possible), np.int64)
    count = 0
    for n in range(len(position)):
        if count == take:
            break
        i = request[n]
        if position[n] >= available[i]:
            continue
        verify[i] += 1
        count += 1
    return verify, best_depth, admitted_value, next_step


@kernel(
    "Tuple((int64[::1], int64, float64, float64))(int64[::1], int64[::1], float64[::1],"
    f" {INTS}, {INTS}, float64, float64[:], float64[:],"
    " int64[:])",
    _admit_loop,
)
def admit(
    position: IntArray,
    request: IntArray,
    value: FloatArray,
    possible: IntArray,
    available: IntArray,
    base: float,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
) -> tuple[IntArray, int, float, float]:
    """Choose the next draft depth D and this step's K_i; see `policies.planning.planner`.

    Args:
        position: [N] of each draft, as `rank` returns it for the larger of the two limits.
        request: [N] likewise.
        value: [N] likewise.
        possible: [B] drafts of each request that the next step could use.
        available: [B] drafts of each request that can be verified now.
        base: sum of the weights, the value of the bonus tokens.
        verify_seconds: [M + 1] verify time with m admitted drafts, M >= sum of either limit.
        draft_seconds: [Kmax + 1] draft time at depth D.
        depths: candidate depths, ascending.

    Returns K_i `[B]`, D, the value of the admitted drafts, and the best ratio of the next step.
    D maximises the ratio over drafts that are possible; K_i maximises it over drafts that are
    available, given the time of drafting to D.
    """
    usable = position < possible[request]
    drafts, at = value[usable], position[usable]
    best, best_depth = -np.inf, 0
    for depth in depths.tolist()[::-1]:  # each has the drafts of the next deeper one or fewer
        usable = at < depth
        drafts, at = drafts[usable], at[usable]
        drafting = draft_seconds[depth]
        score = base / float(verify_seconds[0] + drafting)
        if drafts.size:
            scores = np.add.accumulate(drafts)
            scores += base
            scores /= verify_seconds[1 : len(scores) + 1] + drafting
            score = max(score, float(np.maximum.reduce(scores)))
        if score >= best:
            best, best_depth = score, depth
    usable = position < available[request]
    admitted, total = _best_prefix(value[usable], base, verify_seconds, draft_seconds[best_depth])
    chosen = request[usable][:admitted]
    verify = np.bincount(chosen, minlength=len(possible)).astype(np.int64)
    return verify, best_depth, total, float(best)


def _best_prefix(
    value: FloatArray, base: float, verify_seconds: FloatArray, draft_seconds: float
) -> tuple[int, float]:
    """Length and value of the shortest prefix that reaches the best ratio."""
    total = np.empty(len(value) + 1)
    total[0] = 0.0
    np.cumsum(value, out=total[1:])
    score = (base + total) / (verify_seconds[: len(total)] + draft_seconds)
    admitted = int(np.argmax(score))
    return admitted, float(total[admitted])


def _value_loop(values: FloatArray, verify: IntArray) -> float:
    total = 0.0
    for i in range(len(verify)):
        for j in range(min(verify[i], len(values))):
            total += values[j, i]
    return total


@kernel(f"float64(float64[:, :], {INTS})", _value_loop)
def value_of(values: FloatArray, verify: IntArray) -> float:
    """Sum of values [Kmax, B] at positions below verify [B], request by request."""
    admitted = np.arange(len(values)) < verify[:, None]
    total = np.cumsum(np.where(admitted, values.T, 0.0))
    return float(total[-1]) if total.size else 0.0


@kernel_of_kernels(
    # The controller makes the limits read-only; an array that can be written fits as well.
    "Tuple((int64[::1], int64, float64, float64, float64, boolean))(float64[:, ::1],"
    f" {INTS}, {INTS}, float64[::1], float64[::1], int64[::1], boolean, {BOOLS}, float64[::1])"
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
