"""The planner's search: rank drafts by value, then take the best prefix at the best depth.

Values are position-major, [Kmax, B], and do not increase along a request, so that the most valuable
drafts are always prefixes. Ties go to the shallower position, then to request order.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel
from adaptive_spec.step import FloatArray, IntArray


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
    for n in range(count):
        items[n] |= np.int64(-bits[n]) << 32
    items = np.sort(items)
    position = np.empty(count, np.int64)
    request = np.empty(count, np.int64)
    ordered = np.empty(count, np.float64)
    for n in range(count):
        item = items[n] & 0xFFFFFFFF
        position[n] = item // batch
        request[n] = item - position[n] * batch
        ordered[n] = values[position[n], request[n]]
    return position, request, ordered


@kernel("Tuple((int64[::1], int64[::1], float64[::1]))(float64[:, ::1], int64[:])", _rank_loop)
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
    "Tuple((int64[::1], int64, float64, float64))(int64[::1], int64[::1], float64[::1], int64[:],"
    " int64[:], float64, float64[:], float64[:], int64[:])",
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
    usable_value, at = value[usable], position[usable]
    best, best_depth = -np.inf, int(depths[0])
    for depth in depths.tolist():
        drafts = usable_value[at < depth]
        score, _, _ = _best_prefix(drafts, base, verify_seconds, draft_seconds[depth])
        if score > best:
            best, best_depth = score, depth

    usable = position < available[request]
    _, admitted, total = _best_prefix(
        value[usable], base, verify_seconds, draft_seconds[best_depth]
    )
    chosen = request[usable][:admitted]
    verify = np.bincount(chosen, minlength=len(possible)).astype(np.int64)
    return verify, best_depth, total, float(best)


def _best_prefix(
    value: FloatArray, base: float, verify_seconds: FloatArray, draft_seconds: float
) -> tuple[float, int, float]:
    """Best ratio over prefixes; length and value of the shortest prefix that reaches it."""
    total = np.empty(len(value) + 1)
    total[0] = 0.0
    np.cumsum(value, out=total[1:])
    score = (base + total) / (verify_seconds[: len(total)] + draft_seconds)
    admitted = int(np.argmax(score))
    return float(score[admitted]), admitted, float(total[admitted])


def _value_loop(values: FloatArray, verify: IntArray) -> float:
    total = 0.0
    for i in range(len(verify)):
        for j in range(min(verify[i], len(values))):
            total += values[j, i]
    return total


@kernel("float64(float64[:, :], int64[:])", _value_loop)
def value_of(values: FloatArray, verify: IntArray) -> float:
    """Sum of values [Kmax, B] at positions below verify [B], request by request."""
    admitted = np.arange(len(values)) < verify[:, None]
    total = np.cumsum(np.where(admitted, values.T, 0.0))
    return float(total[-1]) if total.size else 0.0
