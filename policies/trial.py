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

import numpy as np

from adaptive_spec.per_request import sum_of
from adaptive_spec.policies.acceptance import ALIKE, Acceptance
from adaptive_spec.policies.acceptance import DRIFT as POSITION_DRIFT
from adaptive_spec.policies.gaussian import condition, dot, inform, product, variance_of
from adaptive_spec.policies.kernels import Cube, Integers, Kernel, Limits, Matrix, Rows, Vector
from adaptive_spec.policies.planning.planner import Admission, counted_rows, engine_of
from adaptive_spec.policies.step_features import SHARE, fill_rows, tokens_with
from adaptive_spec.policies.step_times import StepTimes, untimed_of
from adaptive_spec.step import FloatArray, StepContext

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
    for e in range(rows):
        side = product(c, x[e])
        total = error[e] / n + dot(x[e], side)
        after = b.copy()
        weight = n / (1.0 + ALIKE * n * information[e].sum())
        inform(after, weight * information[e])
        for j in range(kmax):
            for k in range(kmax):
                after[j, k] = b[j, k] - after[j, k]
        for a in range(rows):
            told[a, e] = dot(by_c[a], side) ** 2 / total + variance_of(after, by_b[a])
    return told


@Kernel
def sum_outcomes(
    survival: Matrix, possible: Limits, verify: Limits, counted: Vector, ks: Integers
) -> Cube:
    """Return [3, A, Kmax] drafts that are accepted, shown and made in steps of each K.

    Args:
        survival: [Kmax, B]
        possible: [B] drafts that a request may have.
        verify: [B] the plan, the last row.
        counted: [B] 1 for a request that takes part, else 0.
        ks: [A - 1] K of the other rows.
    """
    found = np.zeros((3, len(ks) + 1, len(survival)))
    for j in range(len(survival)):
        alike = np.zeros(3)
        for i in range(len(possible)):
            each = survival[j, i], survival[j - 1, i] if j else 1.0, 1.0
            for s in range(3):
                if j < possible[i]:
                    alike[s] += counted[i] * each[s]
                if j < verify[i]:
                    found[s, -1, j] += counted[i] * each[s]
        for a in range(len(ks)):
            if j < ks[a]:
                for s in range(3):
                    found[s, a, j] = alike[s]
    return found


@Kernel
def search(
    survival: Matrix,
    possible: Limits,
    verify: Limits,
    counted: Rows,
    ks: Integers,
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
        verify: [B] the plan, the last of the A choices.
        counted: [B] whether a request takes part.
        ks: [A - 1] K that an engine can run.
        passes: [A] of the drafter.
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
    batch, rows, kmax, plan = len(possible), len(passes), len(survival), len(ks)
    counts = counted.astype(np.float64)
    outcomes = sum_outcomes(survival, possible, verify, counts, ks)
    accepted, shown = outcomes[0], outcomes[1]
    drafts, tokens, hazard = np.empty(rows), np.empty(rows), np.empty(kmax)
    for a in range(rows):
        drafts[a], tokens[a] = outcomes[2, a].sum(), counts.sum() + accepted[a].sum()
    for j in range(kmax):
        rate = accepted[plan - 1, j] / max(shown[plan - 1, j], 1e-9)
        hazard[j] = min(max(rate, 1e-3), 1.0 - 1e-3)
    x = np.empty((rows, len(c)))
    fill_rows(x, buckets, batch, tokens_with(nodes, batch, drafts), context, passes, 0.0)
    # Gradients of ln goodput, less the plan's, in b and in c.
    by_b, by_c, information = np.empty((rows, kmax)), x.copy(), np.empty((rows, kmax))
    seconds, error, fades = np.empty(rows), np.empty(rows), np.empty(rows)
    for a in range(rows):
        seconds[a] = max(dot(x[a], c), 1e-3)
        error[a] = noise * seconds[a] ** 2 + prompts**2
        rest = 0.0
        for j in range(kmax - 1, -1, -1):
            rest += accepted[a, j]
            by_b[a, j] = rest * (1.0 - hazard[j]) / tokens[a]
            information[a, j] = 0.5 * shown[a, j] * hazard[j] * (1.0 - hazard[j])
        # Entry by entry: numba takes two seconds to compile the assignment of a row.
        for p in range(len(c)):
            by_c[a, p] /= seconds[a]
    for a in range(rows):  # the plan's own last
        for j in range(kmax):
            by_b[a, j] -= by_b[plan, j]
        for p in range(len(c)):
            by_c[a, p] -= by_c[plan, p]
        fades[a] = POSITION_DRIFT * variance_of(prior, by_b[a])
        fades[a] += seconds[plan] ** 2 * variance_of(parts, by_c[a])
    untimed, found, most = untimed_of(timed), -1, LEAST
    for n in LENGTHS:
        told = told_by(x, by_b, by_c, information, error, times, positions, n)
        for e in range(plan):
            # K is not timed by a step in which most requests cannot have its drafts.
            if 2.0 * drafts[e] < ks[e] * batch:
                continue
            best = 0.0
            longer, fewer = seconds[e] / seconds[plan], tokens[e] / tokens[plan]
            for a in range(rows):
                gap = math.log(tokens[plan] / seconds[plan] * seconds[a] / tokens[a])
                variance = told[a, e]
                if a == e and untimed[ks[a]] > 0.0:
                    # The features of a step may not hold at a load at which K was not timed.
                    apart = SHARE * SHARE
                    variance += apart * apart / (apart + error[a] / (n * seconds[a] ** 2))
                sigma = math.sqrt(max(variance, 1e-16))
                lasts = min(horizon, variance / max(fades[a], 1e-15))
                best = max(best, lasts * sigma * unit_loss(max(gap, 0.0) / sigma))
            worth = best - n * max(longer - fewer, 0.0)
            if worth > most:
                found, most = ks[e], worth
    return found


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
    batch, capability = context.batch_size, context.capability
    kmax = capability.max_draft_tokens
    if context.step % EVERY or not times.scale or context.prefill_tokens > batch * (1 + kmax):
        return None
    ks, total = engine_of(capability)[0], sum_of(context.context_tokens)
    depths = np.append(ks, best.draft_depth) if capability.steers_depth else [kmax] * (len(ks) + 1)
    k = search(
        survival,
        context.draft_possible,
        best.verify,
        counted_rows(context),
        ks,
        times.passes[depths],
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
