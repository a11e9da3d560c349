"""The exact search: drafts sorted by value, then every depth and every prefix of them.

`planner` has the objective and why this search finds its maximum.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import Integers, Kernel, Limits, Matrix, Vector

_MANY = 768
"""Drafts from which counting their bits is faster than comparing them."""


@Kernel
def rank(values: Matrix, limit: Limits) -> tuple[Integers, Integers, Vector]:
    """Sort drafts by falling value, which is compared at 32 bits.

    Args:
        values: [Kmax, B] >= 0.
        limit: [B] only the first drafts of each request are sorted.

    Returns position j [N], request i [N] and value [N] of each, with N = sum of the limits.
    """
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


@Kernel
def admit(
    position: Integers,
    request: Integers,
    value: Vector,
    possible: Limits,
    available: Limits,
    base: float,
    verify_seconds: Vector,
    draft_seconds: Vector,
    depths: Integers,
) -> tuple[Integers, int, float, float]:
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


@Kernel
def admit_alike(
    values: Matrix,
    base: float,
    verify_seconds: Vector,
    draft_seconds: Vector,
    ladder: Integers,
    one_k: bool,
    penalty: float,
    limit: Limits,
    depths: Integers,
) -> tuple[int, int, float, float]:
    """Choose one K for the batch, of which a request verifies as many drafts as its limit allows.

    With several depths to choose from, K is drafted for and K <= D; with one, it is given. The
    other arguments are those of `best_admission`.

    Returns K, D, the value of the step and its seconds.
    """
    kmax, batch = values.shape
    least, most = kmax, 0
    for i in range(batch):
        least, most = min(least, limit[i]), max(most, limit[i])
    found, best = (0, 0, 0.0, 0.0), -np.inf
    value, drafts, deep = base, 0, 0
    for k in ladder if one_k else np.arange(kmax + 1):
        for j in range(deep, k):
            for i in range(batch):
                if j < limit[i]:
                    value += values[j, i]
                    drafts += 1
        deep = k
        verifying = verify_seconds[drafts] * (1.0 + penalty if least < min(most, k) else 1.0)
        for depth in depths:
            if len(depths) > 1 and (k > depth or (one_k and k != depth)):
                continue
            seconds = verifying + draft_seconds[depth]
            if value / seconds > best:
                best, found = value / seconds, (k, depth, value, seconds)
    return found


@Kernel
def best_admission(
    values: Matrix,
    base: float,
    possible: Limits,
    available: Limits,
    verify_seconds: Vector,
    draft_seconds: Vector,
    ladder: Integers,
    one_k: bool,
    steers: bool,
    penalty: float,
) -> tuple[Integers, int, float, float]:
    """Choose the best plan that an engine can run.

    D is optimal for the next step. K_i is optimal for this one, given D: drafts at hand are paid
    for, so they may go deeper than the next step's. With ``available = min(possible, D)``, which
    is what an engine offers one step later, both together are the optimum over every plan.

    Args:
        values: [Kmax, B] w_i s_ij, not increasing along axis 0.
        base: sum of the weights, the value of the bonus tokens.
        possible: [B] drafts that the next step could use, 0..Kmax.
        available: [B] drafts that can be verified now, 0..Kmax.
        verify_seconds: [M + 1] verify time with m drafts, m = 0..B * Kmax, padding included.
        draft_seconds: [Kmax + 1] draft time by depth.
        ladder: K, or D, that the engine can run, ascending.
        one_k: one K holds for the batch.
        steers: the engine steers the depth; else D is Kmax.
        penalty: p.

    Returns K_i [B], D, the value of the step and its seconds.
    """
    depths = ladder if steers else np.array([len(values)])
    step = values, base, verify_seconds, draft_seconds, ladder, one_k, penalty
    if one_k:
        depth = admit_alike(*step, possible, depths)[1]
        k, depth, value, seconds = admit_alike(*step, available, np.array([depth]))
        return np.minimum(available, k), depth, value, seconds
    position, request, worth = rank(values, np.maximum(possible, available))
    dearer = verify_seconds * (1.0 + penalty)
    ranked = position, request, worth, possible, available, base, dearer, draft_seconds
    verify, depth, more, ratio = admit(*ranked, depths)
    k, value, seconds = 0, -1.0, 1.0
    if penalty > 0.0:
        # Where a uniform batch runs a faster graph: the better of the best of either kind.
        _, deep, value, seconds = admit_alike(*step, possible, depths)
        given = np.array([deep if value / seconds >= ratio else depth])
        k, _, value, seconds = admit_alike(*step, available, given)
        if given[0] != depth:
            verify, depth, more, ratio = admit(*ranked, given)
    drafts, ragged = 0, False
    for i in range(len(verify)):
        drafts += verify[i]
        ragged = ragged or verify[i] != verify[0]
    own = (dearer if ragged else verify_seconds)[drafts] + draft_seconds[depth]
    if value / seconds >= (base + more) / own:
        return np.minimum(available, k), depth, value, seconds
    return verify, depth, base + more, own


@Kernel
def value_of(values: Matrix, verify: Limits) -> float:
    """Sum of values [Kmax, B] at positions below verify [B], request by request."""
    total = 0.0
    for i in range(len(verify)):
        for j in range(min(verify[i], len(values))):
            total += values[j, i]
    return total
