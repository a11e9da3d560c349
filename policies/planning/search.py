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
def value_of(values: Matrix, verify: Limits) -> float:
    """Sum of values [Kmax, B] at positions below verify [B], request by request."""
    total = 0.0
    for i in range(len(verify)):
        for j in range(min(verify[i], len(values))):
            total += values[j, i]
    return total
