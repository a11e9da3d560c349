"""Inner loops of the planner, each in numpy and compiled: worth, sorting and admission of drafts.

`rank` sorts the drafts, `admit` takes the best prefix at the best depth, `best_plan` does both
where K_i are free and a ragged batch costs nothing more. `policies.planning.planner` has the
mathematics. Values are position-major, [Kmax, B].
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import BOOLS, INTS, kernel, kernel_of_kernels
from adaptive_spec.step import BoolArray, FloatArray, IntArray


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
