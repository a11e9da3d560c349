"""One rule for trying: run a K for what it tells, if that is worth more than it loses.

ln goodput of each uniform K is linear in both beliefs near their means. n steps of K move the
difference to the plan by a normal amount of standard deviation sigma (the knowledge gradient of
correlated beliefs; Frazier, Powell, Dayanik 2009), so that they are worth

    H sigma u(gap / sigma) - n lost    (steps of the plan),    u(x) = phi(x) - x (1 - Phi(x)).

A K that was not timed at this load may take `SHARE` more or less than believed, besides.
The plan's own n steps run in any case: what these tell is known by then. H ends where the result
has faded: sigma^2 over the variance that the difference gains in a step.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.policies.planning.planner import Admission
from adaptive_spec.policies.two_beliefs.acceptance import Acceptance
from adaptive_spec.policies.two_beliefs.step_times import SHARE, StepTimes
from adaptive_spec.step import FloatArray, StepContext

EVERY = 4
"""Steps between two searches."""
LEAST = 0.05
"""Least net worth of a trial (steps of the plan)."""
LENGTHS = (1.0, 4.0, 16.0)
"""Steps of K whose worth is looked at."""
FIRST_HORIZON, MOST_HORIZON = 100.0, 500.0
"""Steps for which a result is of use: at first, growing with the steps seen, and at most."""

_erf = np.vectorize(math.erf, otypes=[float])


def unit_loss(x: FloatArray) -> FloatArray:
    """Return phi(x) - x (1 - Phi(x)), at least 0."""
    loss = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    loss -= x * 0.5 * (1.0 - _erf(x / math.sqrt(2.0)))
    return np.maximum(loss, 0.0)


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
    ks = np.array(context.capability.uniform_values)
    position = np.arange(kmax)[:, None]
    taking_part = context.taking_part
    counted = np.ones(batch) if taking_part is None else taking_part.astype(np.float64)
    inside = (position < context.draft_possible) * counted
    own = (position < best.verify) * counted
    reached = np.concatenate((np.ones((1, batch)), survival[:-1]))
    use = np.arange(kmax) < ks[:, None]
    # [A, Kmax] accepted and observed drafts by position: of each K, and last of the plan.
    accepted = np.vstack((use * (survival * inside).sum(axis=1), (survival * own).sum(axis=1)))
    observed = np.vstack((use * (reached * inside).sum(axis=1), (reached * own).sum(axis=1)))
    drafts = np.append(use @ inside.sum(axis=1), own.sum())
    depths = np.full(len(ks) + 1, kmax)
    if context.capability.steers_depth:
        depths = np.append(ks, best.draft_depth)
    total = int(context.context_tokens.sum())
    x = times.rows(batch, drafts + float(batch), total, times.passes[depths])
    seconds = np.maximum(x @ times.coefficients, 1e-3)
    tokens = float(counted.sum()) + accepted.sum(axis=1)
    # K is not timed by a step in which most requests cannot have its drafts.
    possible = 2.0 * drafts[:-1] >= ks * batch
    gap = np.maximum(np.log(tokens[-1] / seconds[-1]) - np.log(tokens / seconds), 0.0)
    lost = np.maximum(seconds / seconds[-1] - tokens / tokens[-1], 0.0)
    # Gradients of ln goodput, less the plan's, in b and in c.
    h = np.clip(accepted[-2] / np.maximum(observed[-2], 1e-9), 1e-3, 1.0 - 1e-3)
    by_b = np.cumsum(accepted[:, ::-1], axis=1)[:, ::-1] * (1.0 - h) / tokens[:, None]
    by_b, by_c = by_b - by_b[-1], x / seconds[:, None]
    by_c = by_c - by_c[-1]
    information = 0.5 * observed * h * (1.0 - h)
    error = times.errors(seconds, prompts)
    fades = seconds[-1] ** 2 * times.fades(by_c, batch, total) + acceptance.fades(by_b)
    horizon = min(FIRST_HORIZON + seen, MOST_HORIZON)
    # The features of a step may not hold at a load at which a K was not timed.
    apart = np.append(SHARE**2 * times.untimed(batch)[ks], 0.0)
    found, most = None, LEAST
    for n in LENGTHS:
        told = _told(acceptance, times, x, by_b, by_c, information, error, n)
        told += np.diag(apart**2 / (apart + error / (n * seconds**2)))
        sigma = np.sqrt(np.maximum(told, 1e-16))
        lasts = np.minimum(horizon, told / np.maximum(fades, 1e-15)[:, None])
        worth = (lasts * sigma * unit_loss(gap[:, None] / sigma)).max(axis=0) - n * lost
        place = int(np.argmax(np.where(possible, worth[:-1], 0.0)))
        if worth[place] > most:
            found, most = int(ks[place]), float(worth[place])
    return found


def _told(
    acceptance: Acceptance,
    times: StepTimes,
    x: FloatArray,
    by_b: FloatArray,
    by_c: FloatArray,
    information: FloatArray,
    error: FloatArray,
    n: float,
) -> FloatArray:
    """Return [A, A] the variance of the difference of row a that n steps of column e tell."""
    own = times.covariance @ x[-1]
    covariance = times.covariance - np.outer(own, own) / (float(x[-1] @ own) + error[-1] / n)
    side = covariance @ x.T
    told = (by_c @ side) ** 2 / (np.einsum("ap,pa->a", x, side) + error / n)
    b = acceptance.after_trial(acceptance.covariance, n * information[-1])
    shown = b - acceptance.after_trial(b, n * information)
    found: FloatArray = told + ((by_b @ shown) * by_b).sum(axis=2).T
    return found
