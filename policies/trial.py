"""One rule for trying: run a K for what it tells, if that is worth more than it loses.

ln goodput of each uniform K is linear in both beliefs near their means. n steps of K move the
difference to the plan by a normal amount of standard deviation sigma (the knowledge gradient of
correlated beliefs; Frazier, Powell, Dayanik 2009), so that they are worth

    H sigma u(gap / sigma) - n lost    (steps of the plan),    u(x) = phi(x) - x (1 - Phi(x)).

A K that was not timed at this load may take `SHARE` more or less than believed, besides.
The plan's own n steps run in any case: what these tell is known by then. H ends where the result
has faded: sigma^2 over the variance that the difference gains in a step, by drift and, in the mean
of the last steps, by jumps of step times.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from adaptive_spec.per_request import sum_of
from adaptive_spec.policies.acceptance import ALIKE, Acceptance
from adaptive_spec.policies.acceptance import DRIFT as POSITION_DRIFT
from adaptive_spec.policies.gaussian import condition, inform
from adaptive_spec.policies.kernels import Integers, Kernel, Limits, Matrix, Rows, Vector
from adaptive_spec.policies.planning.planner import Admission, everybody
from adaptive_spec.policies.step_features import SHARE, fill_rows, tokens_with
from adaptive_spec.policies.step_times import StepTimes, untimed_of
from adaptive_spec.step import Capability, FloatArray, IntArray, StepContext

EVERY = 4
"""Steps between two searches."""
LEAST = 0.05
"""Least net worth of a trial (steps of the plan)."""
LENGTHS = (1.0, 4.0, 16.0)
"""Steps of K whose worth is looked at."""
FIRST_HORIZON = 100.0
"""Steps for which a result is of use at first; they grow with the steps seen."""
MOST_HORIZON = 5.0 * FIRST_HORIZON
"""Such steps at most."""


@Kernel
def unit_loss(x: float) -> float:
    """Return phi(x) - x (1 - Phi(x)), at least 0."""
    density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return max(density - x * 0.5 * math.erfc(x / math.sqrt(2.0)), 0.0)


@Kernel
def told_by(
    x: Matrix,
    by_b: Matrix,
    by_c: Matrix,
    information: Matrix,
    error: Vector,
    times: Matrix,
    positions: Matrix,
    n: float,
) -> Matrix:
    """Return [A, A] the variance of the difference of row a that n steps of column e tell.

    The plan, the last row, runs its n steps in any case.

    Args:
        x: [A, P] features of steps.
        by_b: [A, Kmax] gradient of the difference to the plan, in b.
        by_c: [A, P] likewise, in c.
        information: [A, Kmax] that the outcomes of a step bring.
        error: [A] variance of a step's time.
        times: [P, P] covariance of c.
        positions: [Kmax, Kmax] covariance of b.
        n: steps.
    """
    rows, kmax = information.shape
    c = times.copy()
    condition(np.zeros(x.shape[1]), c, x[-1], 0.0, error[-1] / n)
    b = positions.copy()
    inform(b, n / (1.0 + ALIKE * n * information[-1].sum()) * information[-1])
    told = np.empty((rows, rows))
    side = np.empty(x.shape[1])
    for e in range(rows):
        side[:] = 0.0
        for p in range(len(side)):
            if x[e, p] != 0.0:
                for q in range(len(side)):
                    side[q] += x[e, p] * c[p, q]
        total = error[e] / n
        for p in range(len(side)):
            total += x[e, p] * side[p]
        for a in range(rows):
            moved = 0.0
            for p in range(len(side)):
                moved += by_c[a, p] * side[p]
            told[a, e] = moved * moved / total
        after = b.copy()
        weight = n / (1.0 + ALIKE * n * information[e].sum())
        inform(after, weight * information[e])
        for a in range(rows):
            for j in range(kmax):
                for k in range(kmax):
                    told[a, e] += by_b[a, j] * (b[j, k] - after[j, k]) * by_b[a, k]
    return told


@Kernel
def sum_outcomes(
    accepted: Matrix,
    observed: Matrix,
    drafted: Matrix,
    tokens: Vector,
    survival: Matrix,
    possible: Limits,
    verify: Limits,
    counted: Vector,
    ks: Integers,
) -> None:
    """Overwrite what steps of each uniform K, and last of the plan, are expected to show.

    Args:
        accepted: [A, Kmax] drafts by position.
        observed: [A, Kmax] whose outcome is seen.
        drafted: [A, Kmax] in all.
        tokens: [A] emitted.
        survival: [Kmax, B]
        possible: [B] drafts that a request may have.
        verify: [B] the plan.
        counted: [B] 1 for a request that takes part, else 0.
        ks: [A - 1] K.
    """
    plan = len(ks)
    for j in range(len(survival)):
        alone = np.zeros(6)
        for i in range(len(possible)):
            reached = survival[j - 1, i] if j else 1.0
            if j < possible[i]:
                alone[0] += counted[i] * survival[j, i]
                alone[1] += counted[i] * reached
                alone[2] += counted[i]
            if j < verify[i]:
                alone[3] += counted[i] * survival[j, i]
                alone[4] += counted[i] * reached
                alone[5] += counted[i]
        for a in range(plan):
            use = 1.0 if j < ks[a] else 0.0
            accepted[a, j], observed[a, j] = use * alone[0], use * alone[1]
            drafted[a, j] = use * alone[2]
        accepted[plan, j], observed[plan, j], drafted[plan, j] = alone[3], alone[4], alone[5]
    for a in range(plan + 1):
        tokens[a] = counted.sum() + accepted[a].sum()


@Kernel
def most_worth(
    accepted: Matrix,
    observed: Matrix,
    tokens: Vector,
    x: Matrix,
    seconds: Vector,
    times: Matrix,
    parts: Matrix,
    positions: Matrix,
    prior: Matrix,
    untimed: Vector,
    possible: Rows,
    noise: float,
    prompts: float,
    horizon: float,
) -> int:
    """Return the row whose trial is worth most, -1 if none is worth its cost.

    Args:
        accepted: [A, Kmax] drafts by position; the last row is the plan.
        observed: [A, Kmax] whose outcome is seen.
        tokens: [A]
        x: [A, P] features.
        seconds: [A] units.
        times: [P, P] covariance of c.
        parts: [P, P] variance that c gains in a step.
        positions: [Kmax, Kmax] covariance of b.
        prior: [Kmax, Kmax] of what b drifts by.
        untimed: [A] 1 for a K that was not timed at this load.
        possible: [A] whether enough requests may have its drafts.
        noise: variance of a step's time, relative.
        prompts: standard deviation of a step's time by its prompts (units).
        horizon: steps for which a result is of use, if it does not fade.
    """
    rows, kmax = accepted.shape
    plan = rows - 1
    # Gradients of ln goodput, less the plan's, in b and in c.
    hazard = np.empty(kmax)
    for j in range(kmax):
        rate = accepted[plan - 1, j] / max(observed[plan - 1, j], 1e-9)
        hazard[j] = min(max(rate, 1e-3), 1.0 - 1e-3)
    by_b, by_c = np.zeros((rows, kmax)), np.zeros((rows, x.shape[1]))
    information = np.empty((rows, kmax))
    gap, lost, error = np.empty(rows), np.empty(rows), np.empty(rows)
    for a in range(rows):
        gap[a] = max(math.log(tokens[plan] / seconds[plan] * seconds[a] / tokens[a]), 0.0)
        lost[a] = max(seconds[a] / seconds[plan] - tokens[a] / tokens[plan], 0.0)
        error[a] = noise * seconds[a] ** 2 + prompts**2
        rest = 0.0
        for j in range(kmax - 1, -1, -1):
            rest += accepted[a, j]
            by_b[a, j] = rest * (1.0 - hazard[j]) / tokens[a]
            information[a, j] = 0.5 * observed[a, j] * hazard[j] * (1.0 - hazard[j])
        # Entry by entry: numba takes two seconds to compile the assignment of a row.
        for p in range(x.shape[1]):
            by_c[a, p] = x[a, p] / seconds[a]
    fades = np.zeros(rows)
    for a in range(rows):  # the plan's own last
        for p in range(x.shape[1]):
            by_c[a, p] -= by_c[plan, p]
        for j in range(kmax):
            by_b[a, j] -= by_b[plan, j]
        for j in range(kmax):
            for k in range(kmax):
                fades[a] += POSITION_DRIFT * by_b[a, j] * prior[j, k] * by_b[a, k]
        drift = 0.0
        for p in range(x.shape[1]):
            if by_c[a, p] != 0.0:
                for q in range(x.shape[1]):
                    drift += by_c[a, p] * parts[p, q] * by_c[a, q]
        fades[a] += seconds[plan] ** 2 * drift
    found, most = -1, LEAST
    for n in LENGTHS:
        told = told_by(x, by_b, by_c, information, error, times, positions, n)
        for e in range(plan):
            if not possible[e]:
                continue
            best = 0.0
            for a in range(rows):
                variance = told[a, e]
                if a == e and untimed[a] > 0.0:
                    # The features of a step may not hold at a load at which K was not timed.
                    apart = SHARE * SHARE
                    variance += apart * apart / (apart + error[a] / (n * seconds[a] ** 2))
                sigma = math.sqrt(max(variance, 1e-16))
                lasts = min(horizon, variance / max(fades[a], 1e-15))
                best = max(best, lasts * sigma * unit_loss(gap[a] / sigma))
            worth = best - n * lost[e]
            if worth > most:
                found, most = e, worth
    return found


@Kernel
def search(
    survival: Matrix,
    possible: Limits,
    verify: Limits,
    depth: int,
    counted: Rows,
    ks: Integers,
    depths: Integers,
    passes: Vector,
    timed: Vector,
    buckets: Vector,
    nodes: Vector,
    c: Vector,
    times: Matrix,
    parts: Matrix,
    positions: Matrix,
    prior: Matrix,
    context: float,
    noise: float,
    prompts: float,
    horizon: float,
) -> int:
    """Return K whose trial is worth most, -1 if none is worth its cost.

    Args:
        survival: [Kmax, B]
        possible: [B] drafts that a request may have.
        verify: [B] the plan.
        depth: of the plan.
        counted: [B] whether a request takes part.
        ks: [A - 1] K that an engine can run.
        depths: [A - 1] depth to which the drafter runs for them.
        passes: [Kmax + 1] of the drafter by depth.
        timed: [Kmax + 1] steps timed at this load.
        buckets: [n] captured sizes.
        nodes: [Kmax + 1] tokens of one request at each K, where drafts are trees; else empty.
        c: [P] the likeliest coefficients.
        times: [P, P] covariance of c.
        parts: [P, P] variance that c gains in a step.
        positions: [Kmax, Kmax] covariance of b.
        prior: [Kmax, Kmax] of what b drifts by.
        context: tokens.
        noise: variance of a step's time, relative.
        prompts: standard deviation of a step's time by its prompts (units).
        horizon: steps for which a result is of use, if it does not fade.
    """
    batch, rows, kmax = len(possible), len(ks) + 1, len(survival)
    accepted, observed = np.empty((rows, kmax)), np.empty((rows, kmax))
    drafted, tokens = np.empty((rows, kmax)), np.empty(rows)
    counts = counted.astype(np.float64)
    sum_outcomes(accepted, observed, drafted, tokens, survival, possible, verify, counts, ks)
    untimed, enough = np.zeros(rows), np.zeros(rows, dtype=np.bool_)
    run, total = np.empty(rows), np.empty(rows)
    found = untimed_of(timed)
    for a in range(rows):
        total[a] = drafted[a].sum()
        run[a] = passes[depths[a] if a < len(ks) else depth]
        if a < len(ks):
            untimed[a] = found[ks[a]]
            # K is not timed by a step in which most requests cannot have its drafts.
            enough[a] = 2.0 * total[a] >= ks[a] * batch
    x, seconds = np.empty((rows, len(c))), np.empty(rows)
    verified = tokens_with(nodes, batch, total)
    fill_rows(x, buckets, batch, verified, context, run, 0.0)
    for a in range(rows):
        seconds[a] = 0.0
        for p in range(len(c)):
            seconds[a] += x[a, p] * c[p]
        seconds[a] = max(seconds[a], 1e-3)
    place = most_worth(
        accepted,
        observed,
        tokens,
        x,
        seconds,
        times,
        parts,
        positions,
        prior,
        untimed,
        enough,
        noise,
        prompts,
        horizon,
    )
    return ks[place] if place >= 0 else -1


def best_trial(
    context: StepContext,
    best: Admission,
    survival: FloatArray,
    acceptance: Acceptance,
    times: StepTimes,
    seen: int,
    prompts: float = 0.0,
) -> int | None:
    """Return the uniform K whose trial is worth most, None if none is worth its cost.

    Args:
        context: the step.
        best: its plan.
        survival: [Kmax, B]
        acceptance: belief 1.
        times: belief 2.
        seen: steps planned so far.
        prompts: prompt tokens of a step, in the mean.
    """
    batch, kmax = context.batch_size, len(survival)
    if context.step % EVERY or not times.scale or context.prefill_tokens > batch * (1 + kmax):
        return None
    ks, depths = _actions(context.capability)
    taking_part, total = context.taking_part, sum_of(context.context_tokens)
    k = search(
        survival,
        context.draft_possible,
        best.verify,
        best.draft_depth if context.capability.steers_depth else kmax,
        everybody(batch) if taking_part is None else taking_part,
        ks,
        depths,
        times.passes,
        times.steps_at(batch),
        times.buckets,
        times.nodes,
        times.coefficients,
        times.covariance,
        times.drift(batch, total),
        acceptance.covariance,
        acceptance.prior,
        total,
        times.noise,
        times.prompt_error(prompts),
        min(FIRST_HORIZON + seen, MOST_HORIZON),
    )
    return None if k < 0 else int(k)


@lru_cache(maxsize=16)
def _actions(capability: Capability) -> tuple[IntArray, IntArray]:
    """Return K that the engine can run for all requests, and the depth that each needs."""
    ks = np.array(capability.uniform_values, dtype=np.int64)
    return ks, ks if capability.steers_depth else np.full_like(ks, capability.max_draft_tokens)
