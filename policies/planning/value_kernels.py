"""Inner loops of the search for a trial, each in numpy and compiled.

`actions_of` says what the next step may run, `told_of` what is believed of it and what trials would
tell, `net_gains` what they are worth; `grow` ages what is known of positions.
`policies.planning.value` has the mathematics.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.policies.kernels import INTS, kernel
from adaptive_spec.step import FloatArray, IntArray

_LONG = 10.0
"""Factor of the horizon of a trial without the drafter."""
_REPEATS: FloatArray = np.array([1.0, 4.0, 16.0])
HAZARD_DRIFT = 3e-5
"""Variance per step of a position's logit while the position is not observed."""
_UNKNOWN = 0.5
"""Share of an outcome that tells of the position, not of its request."""
_EVIDENCE_KEPT = 20
"""Observations of a position that still count after acceptance has changed."""
FRACTION = 1.0 / 8.0
"""Share of the requests that verify one draft more in a trial of acceptance."""


def _grow_loop(age: FloatArray, seen: IntArray, kept: IntArray, observations: IntArray) -> None:
    for j in range(len(age)):
        age[j] = 0.0 if observations[j] > seen[j] else age[j] + 1.0
        if observations[j] < seen[j]:
            kept[j] = min(seen[j], _EVIDENCE_KEPT)
        seen[j] = observations[j]


@kernel(f"void(float64[::1], int64[::1], int64[::1], {INTS})", _grow_loop)
def grow(age: FloatArray, seen: IntArray, kept: IntArray, observations: IntArray) -> None:
    """Count a step for positions [Kmax] that were not observed in it, in place.

    Where acceptance has changed, its model counts anew: then few of the earlier observations are
    kept.
    """
    anew = observations < seen
    kept[anew] = np.minimum(seen[anew], _EVIDENCE_KEPT)
    age += 1.0
    age[observations > seen] = 0.0
    seen[:] = observations


def _actions_loop(
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


@kernel(
    "Tuple((float64[:, ::1], float64[:, ::1], int64[::1], int64[::1], float64[::1]))("
    f"float64[:, :], {INTS}, {INTS}, int64[::1], float64[::1], boolean, int64, int64, boolean)",
    _actions_loop,
)
def actions_of(
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
    """Return accepted, observed, verified, depths and hazard of `Actions`.

    The order is: each K; the plan; one draft more for some requests; no drafter, which is no trial:
    other trials show whether it is better.

    Args:
        survival: [Kmax, B]
        possible: [B] drafts that the next step could use.
        ours: [B] drafts that the plan verifies.
        ks: [plan] of the ladder.
        found: [plan] share of the drafts of each that the drafter finds.
        steers: the engine steers the depth.
        depth: D of the plan.
        deeper: position of the draft more; Kmax: there is none.
        cold: the engine can leave the drafter out.
    """
    kmax, batch = survival.shape
    position = np.arange(kmax)[:, None]
    reached = np.ones_like(survival)
    reached[1:] = survival[:-1]
    inside = position < possible
    by_all = (survival * inside).sum(axis=1), (reached * inside).sum(axis=1)
    drafts = np.concatenate(([0], np.cumsum(np.count_nonzero(inside, axis=1))))
    plan = position < ours
    by_plan = (survival * plan).sum(axis=1), (reached * plan).sum(axis=1)
    use = (position[:, 0] < ks[:, None]) * found[:, None]
    verified, depths = [*(found * drafts[ks]), ours.sum()], [*ks] if steers else [kmax] * len(ks)
    depths.append(depth)
    more: list[FloatArray] = []
    if deeper < kmax:
        some = max(FRACTION, 1.0 / batch)
        more.append(some * (position[:, 0] == deeper))
        verified.append(verified[-1] + max(int(some * batch), 1))
        depths.append(min(depth + 1, kmax))
    none = []
    if cold:
        none.append(np.zeros(kmax))
        verified.append(0)
        depths.append(-1)
    accepted, observed = (
        np.array([*use * every, own, *(own + share * every for share in more), *none])
        for every, own in zip(by_all, by_plan, strict=True)
    )
    rate = by_all[0] / np.maximum(by_all[1], 1e-9)
    hazard = np.minimum(np.maximum(rate, 1e-3), 1.0 - 1e-3)
    return accepted, observed, np.array(verified).astype(np.int64), np.array(depths), hazard


def _told_loop(
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
                told = _UNKNOWN * hazard[j] * (1.0 - hazard[j])
                before = 1.0 / unsure[j] + n * told * observed[plan, j]
                left[j] = 1.0 / before - 1.0 / (before + n * told * observed[e, j])
            for a in range(size):
                apart[a] = times[a, e] - by_plan[a] * by_plan[e] - of_plan
                more = apart[a] * apart[a] / own
                for j in range(kmax):
                    more += slope[a, j] * slope[a, j] * left[j]
                change[r, a, e] = math.sqrt(max(more, 1e-16))
    return tokens, change, drifts


@kernel(
    "Tuple((float64[::1], float64[:, :, ::1], float64[::1]))(float64[:, ::1], float64[:, ::1],"
    " float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], float64[::1], int64, int64)",
    _told_loop,
)
def told_of(
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
    """Return tokens, change and drifts of `Outlook`.

    Args:
        times: [A, A] covariance of ln seconds.
        drift: [A, A] by which it grows in a step.
        noise: [A] relative variance of a measured step.
        accepted: [A, Kmax] as in `Actions`.
        observed: [A, Kmax] likewise.
        hazard: [Kmax] likewise.
        unsure: [Kmax] variance of the logit of each position.
        taking_part: requests whose tokens count.
        plan: which of the actions the plan is.
    """
    tokens = taking_part + accepted.sum(axis=1)
    # d ln tokens / d logit of a position: all later tokens need it.
    later = np.cumsum(accepted[:, ::-1], axis=1)[:, ::-1]
    slope = later * (1.0 - hazard) / tokens[:, None]
    slope = slope - slope[plan]
    told = _UNKNOWN * observed * hazard * (1.0 - hazard)
    n = _REPEATS[:, None]
    # [n, A, A] and [n, 1, Kmax]: covariance and variance after n steps of the plan.
    by_plan = times[plan] / np.sqrt(max(times[plan, plan], 0.0) + noise[plan] / n)
    after = times - by_plan[:, :, None] * by_plan[:, None, :]
    unsure = 1.0 / (1.0 / unsure + n * told[plan])[:, None, :]
    left = unsure - 1.0 / (1.0 / unsure + n[:, :, None] * told)  # [n, E, Kmax]
    apart = after - after[:, plan, None, :]  # [n, A, E]
    change = apart**2 / (np.diagonal(after, axis1=1, axis2=2) + noise / n)[:, None, :]
    change = change + slope**2 @ left.transpose(0, 2, 1)
    drifts = np.diag(drift) + drift[plan, plan] - 2.0 * drift[plan]
    drifts = drifts + HAZARD_DRIFT * (slope**2).sum(axis=1)
    return tokens, np.sqrt(np.maximum(change, 1e-16)), drifts


def _net_gains_loop(
    seconds: FloatArray,
    tokens: FloatArray,
    change: FloatArray,
    drifts: FloatArray,
    admitted: float,
    horizon: float,
    plan: int,
    cold: bool,
) -> FloatArray:
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
                    longest *= _LONG
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


@kernel(
    "float64[:, ::1](float64[::1], float64[::1], float64[:, :, ::1], float64[::1], float64,"
    " float64, int64, boolean)",
    _net_gains_loop,
)
def net_gains(
    seconds: FloatArray,
    tokens: FloatArray,
    change: FloatArray,
    drifts: FloatArray,
    admitted: float,
    horizon: float,
    plan: int,
    cold: bool,
) -> FloatArray:
    """Return gain minus cost, in steps, of n runs of each action: [n, A].

    Args:
        seconds: [A] as in `Outlook`.
        tokens: [A] likewise.
        change: [n, A, E] likewise.
        drifts: [A] likewise.
        admitted: ln goodput that a K of the ladder lacks, as no draft is chosen by confidence.
        horizon: steps in which what a trial tells is of use.
        plan: which of the actions the plan is.
        cold: the last action is no drafter.
    """
    ks = slice(0, plan)
    value = np.log(tokens / seconds)
    gap = np.maximum(value[plan] - value, 0.0)
    gap[ks] += admitted
    longest = np.full(len(gap), horizon)
    if cold:
        gap[-1] = abs(value[plan] - value[-1])
        longest[-1] *= _LONG
    lasts = change**2 / np.maximum(drifts, 1e-12)[:, None]
    each = change * unit_loss(gap[:, None] / change) * np.minimum(longest[:, None], lasts)
    lost = seconds / seconds[plan] - tokens / tokens[plan]
    lost[ks] += admitted
    net: FloatArray = each.max(axis=1) - _REPEATS[:, None] * np.maximum(lost, 0.0)
    net[:, plan] = 0.0
    if cold:
        net[:, -1] = 0.0
    return net


def unit_loss(distance: FloatArray) -> FloatArray:
    """E max(z - distance, 0) of a standard normal z."""
    density = np.exp(-0.5 * distance * distance) / math.sqrt(2.0 * math.pi)
    erf = np.fromiter(map(math.erf, (distance / math.sqrt(2.0)).ravel().tolist()), np.float64)
    result: FloatArray = density - distance * 0.5 * (1.0 - erf.reshape(distance.shape))
    return np.maximum(result, 0.0)
