"""Kernels of the planner and of the search for a trial as loops, which numba compiles.

`planner` and `trials` hold the same computations in numpy, which define them, and the mathematics.
Constants that both forms use stand here: the disk cache goes by the file of a loop.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.step import FloatArray, IntArray

_MANY = 768
"""Drafts from which counting their bits is faster than comparing them."""
HAZARD_DRIFT = 3e-5
"""Variance per step of a position's logit while the position is not observed."""
UNKNOWN = 0.5
"""Share of an outcome that tells of the position, not of its request."""
EVIDENCE_KEPT = 20
"""Observations of a position that still count after acceptance has changed."""
FRACTION = 1.0 / 8.0
"""Share of the requests that verify one draft more in a trial of acceptance."""
LONG = 10.0
"""Factor of the horizon of a trial without the drafter."""


def worth_loop(survival: FloatArray, seconds: FloatArray) -> FloatArray:
    """Compute `planner.worth`."""
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


def rank_loop(values: FloatArray, limit: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Compute `planner.rank`."""
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


def admit_loop(
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
    """Compute `planner.admit`."""
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


def value_loop(values: FloatArray, verify: IntArray) -> float:
    """Compute `planner.value_of`."""
    total = 0.0
    for i in range(len(verify)):
        for j in range(min(verify[i], len(values))):
            total += values[j, i]
    return total


def age_positions_loop(
    age: FloatArray, seen: IntArray, kept: IntArray, observations: IntArray
) -> None:
    """Compute `trials.age_positions`."""
    for j in range(len(age)):
        age[j] = 0.0 if observations[j] > seen[j] else age[j] + 1.0
        if observations[j] < seen[j]:
            kept[j] = min(seen[j], EVIDENCE_KEPT)
        seen[j] = observations[j]


def actions_loop(
    survival: FloatArray,
    possible: IntArray,
    ours: IntArray,
    ks: IntArray,
    found: FloatArray,
    steers: bool,
    depth: int,
    deeper: int,
    cold: bool,
) -> tuple[FloatArray, FloatArray, IntArray, IntArray, FloatArray]:
    """Compute `trials.actions_of`."""
    kmax, batch = survival.shape
    plan, more = len(ks), int(deeper < kmax)
    size = plan + 1 + more + int(cold)
    accepted, observed = np.zeros((size, kmax)), np.zeros((size, kmax))
    verified, depths = np.zeros(size, np.int64), np.zeros(size, np.int64)
    all_accepted, all_observed, hazard = np.zeros(kmax), np.zeros(kmax), np.empty(kmax)
    drafts = np.zeros(kmax + 1, np.int64)
    for j in range(kmax):
        drafts[j + 1] = drafts[j]
        for i in range(batch):
            reached = 1.0 if j == 0 else survival[j - 1, i]
            if j < possible[i]:
                all_accepted[j] += survival[j, i]
                all_observed[j] += reached
                drafts[j + 1] += 1
            if j < ours[i]:
                accepted[plan, j] += survival[j, i]
                observed[plan, j] += reached
                verified[plan] += 1
        rate = all_accepted[j] / max(all_observed[j], 1e-9)
        hazard[j] = min(max(rate, 1e-3), 1.0 - 1e-3)
    depths[plan] = depth
    for a in range(plan):
        verified[a] = int(found[a] * drafts[ks[a]])
        depths[a] = ks[a] if steers else kmax
        for j in range(ks[a]):
            accepted[a, j] = found[a] * all_accepted[j]
            observed[a, j] = found[a] * all_observed[j]
    if more:
        some = max(FRACTION, 1.0 / batch)
        accepted[plan + 1] = accepted[plan]
        observed[plan + 1] = observed[plan]
        accepted[plan + 1, deeper] += some * all_accepted[deeper]
        observed[plan + 1, deeper] += some * all_observed[deeper]
        verified[plan + 1] = verified[plan] + max(int(some * batch), 1)
        depths[plan + 1] = min(depth + 1, kmax)
    if cold:
        depths[size - 1] = -1
    return accepted, observed, verified, depths, hazard


def told_loop(
    times: FloatArray,
    drift: FloatArray,
    noise: FloatArray,
    accepted: FloatArray,
    observed: FloatArray,
    hazard: FloatArray,
    unsure: FloatArray,
    taking_part: int,
    plan: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute `trials.told_of`."""
    size, kmax = accepted.shape
    tokens, drifts = np.empty(size), np.empty(size)
    change = np.empty((3, size, size))
    slope, left = np.empty((size, kmax)), np.empty(kmax)
    by_plan, apart = np.empty(size), np.empty(size)
    for a in range(size):
        tokens[a] = taking_part
        for j in range(kmax):
            tokens[a] += accepted[a, j]
        later = 0.0
        for j in range(kmax - 1, -1, -1):
            later += accepted[a, j]
            slope[a, j] = later * (1.0 - hazard[j]) / tokens[a]
    for a in range(size):
        drifts[a] = drift[a, a] + drift[plan, plan] - 2.0 * drift[plan, a]
        for j in range(kmax):
            if a != plan:
                slope[a, j] -= slope[plan, j]
                drifts[a] += HAZARD_DRIFT * slope[a, j] * slope[a, j]
    slope[plan] = 0.0
    for r in range(3):
        n = 4.0**r
        scale = math.sqrt(max(times[plan, plan], 0.0) + noise[plan] / n)  # rounding
        for a in range(size):
            by_plan[a] = times[plan, a] / scale
        for e in range(size):
            own = times[e, e] - by_plan[e] * by_plan[e] + noise[e] / n
            of_plan = times[plan, e] - by_plan[plan] * by_plan[e]
            for j in range(kmax):
                told = UNKNOWN * hazard[j] * (1.0 - hazard[j])
                before = 1.0 / unsure[j] + n * told * observed[plan, j]
                left[j] = 1.0 / before - 1.0 / (before + n * told * observed[e, j])
            for a in range(size):
                apart[a] = times[a, e] - by_plan[a] * by_plan[e] - of_plan
                more = apart[a] * apart[a] / own
                for j in range(kmax):
                    more += slope[a, j] * slope[a, j] * left[j]
                change[r, a, e] = math.sqrt(max(more, 1e-16))
    return tokens, change, drifts


def net_gains_loop(
    seconds: FloatArray,
    tokens: FloatArray,
    change: FloatArray,
    drifts: FloatArray,
    admitted: float,
    horizon: float,
    plan: int,
    cold: bool,
) -> FloatArray:
    """Compute `trials.net_gains`."""
    size = len(seconds)
    net = np.zeros((3, size))
    value = np.log(tokens / seconds)
    for e in range(size - int(cold)):
        if e == plan:
            continue
        lost = seconds[e] / seconds[plan] - tokens[e] / tokens[plan]
        lost = max(lost + (admitted if e < plan else 0.0), 0.0)
        for r in range(3):
            gain = 0.0
            for a in range(size):
                gap = value[plan] - value[a]
                longest = horizon
                if cold and a == size - 1:
                    gap = abs(gap)
                    longest *= LONG
                else:
                    gap = max(gap, 0.0) + (admitted if a < plan else 0.0)
                told = change[r, a, e]
                z = gap / told
                loss = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
                loss -= z * 0.5 * (1.0 - math.erf(z / math.sqrt(2.0)))
                # The result of a trial lasts until the belief has drifted by as much.
                lasts = told * told / max(drifts[a], 1e-12)
                gain = max(gain, told * max(loss, 0.0) * min(longest, lasts))
            net[r, e] = gain - 4.0**r * lost
    return net
