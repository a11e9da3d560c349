"""Trials: K that are run for what their steps tell.

ln goodput of each uniform K, of the plan, of the plan with one draft more for some requests, and of
no drafter are correlated Gaussians: their step times by the belief about step times, their tokens
by the hazard of each position, whose logit has variance 1 / evidence + drift * age. What a trial
tells changes which of them seems best. Its knowledge gradient (Frazier, Powell, Dayanik, INFORMS J.
Computing 21, 2009) is the gain expected of that, in the two-point form, repeated n times:

    max over actions a of s_a u(gap_a / s_a),  u(z) = phi(z) - z (1 - Phi(z))

s_a is the standard deviation by which n trials change the difference between a and the plan, beyond
what n steps of the plan itself would tell. Of the trials with horizon * gradient > n * cost, the
one with the largest difference runs. The horizon is the number of steps that this load has run for,
up to a bound (Lindy's law), because a trial tells nothing of use about a load that never returns.
Nor is it longer than the steps in which the belief drifts by s_a: by then the trial's result is out
of date.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptive_spec.per_request import sum_of
from adaptive_spec.policies.kernels import INTS, kernel
from adaptive_spec.policies.planning.loops import (
    EVIDENCE_KEPT,
    FRACTION,
    HAZARD_DRIFT,
    LONG,
    UNKNOWN,
    actions_loop,
    age_positions_loop,
    net_gains_loop,
    told_loop,
)
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_time.model import UNSURE, CostModel
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, StepContext

_REPEATS: FloatArray = np.array([1.0, 4.0, 16.0])
_LEAST_HORIZON, _HORIZON = 60.0, 500.0
"""Steps in which what a trial tells is of use."""
_LEAST_NET = 0.05
"""Gain of a trial, in steps, below which it is not worth leaving the plan."""
_SAME = 1e-9
"""Difference of gains, in steps, that is rounding."""
_PERIOD = 4
"""Steps from one search for a trial to the next."""
_MOST_EVIDENCE = 1000
"""Most observations of a position that count."""
_MOSTLY_PROMPTS = 4
"""Prompt tokens over most drafts from which a step tells of prompts alone."""
_ADMITTED_RATE = 1.0 / 16.0
"""Weight of a new step in the mean gain of admission by confidence."""
DEEPER = -1
"""A trial of the plan with one draft more for some requests."""


class Actions(NamedTuple):
    """Choices of a step: each K of the ladder, the plan, and perhaps one deeper and no drafter.

    Attributes:
        accepted: [A, Kmax] expected accepted drafts, by position.
        observed: [A, Kmax] expected observations, by position.
        verified: [A] drafts.
        depths: [A] D; -1 without the drafter.
        hazard: [Kmax] mean hazard of each position.
        plan: which of the actions the plan is.
    """

    accepted: FloatArray
    observed: FloatArray
    verified: IntArray
    depths: IntArray
    hazard: FloatArray
    plan: int


class Outlook(NamedTuple):
    """Belief about the actions, against the plan.

    Attributes:
        seconds: [A] expected duration.
        tokens: [A] expected tokens.
        change: [n, A, E] standard deviation by which n runs of E change ln goodput of A.
        drifts: [A] variance by which that drifts per step.
    """

    seconds: FloatArray
    tokens: FloatArray
    change: FloatArray
    drifts: FloatArray


class Trials:
    """Chooses trials.

    Args:
        capability: of the engine.
        cost: step times.
    """

    def __init__(self, capability: Capability, cost: CostModel) -> None:
        self._capability, self.cost = capability, cost
        self._ks: IntArray = np.array(capability.uniform_values, dtype=np.int64)
        self._age: FloatArray = np.zeros(capability.max_draft_tokens)
        self._seen: IntArray = np.zeros(capability.max_draft_tokens, dtype=np.int64)
        self._kept: IntArray = np.zeros(capability.max_draft_tokens, dtype=np.int64)
        """Observations that count besides those of the present acceptance."""
        self._steps: dict[int, int] = {}
        self._admitted = 0.0
        self._found: FloatArray = np.ones(len(self._ks))
        """Share of the drafts of each K that the drafter finds; one that copies finds few."""

    def note_share_found(self, k: int, share: float) -> None:
        """Remember which share of the drafts that a trial of K asked for the drafter had found."""
        self._found[self._ks == k] = share

    def add_admission_gain(self, gain: float) -> None:
        """Average ln goodput of a step's plan over the best plan by history."""
        self._admitted += _ADMITTED_RATE * (gain - self._admitted)

    def measures_prompts(self, context: StepContext) -> bool:
        """Whether the time of this step would tell of its prompts alone."""
        most_tokens = context.batch_size * (1 + self._capability.max_draft_tokens)
        return context.prefill_tokens > _MOSTLY_PROMPTS * most_tokens

    def best_trial(self, forecast: StepForecast, observations: IntArray | None) -> int | None:
        """Return the K to try in the next step, `DEEPER`, or None.

        Args:
            forecast: of this step.
            observations: [Kmax] times each position has been observed; None: the acceptance model
                explores by itself, so that no trial has to tell of acceptance.
        """
        context = forecast.context
        if observations is None:
            observations = np.full(len(self._seen), _MOST_EVIDENCE)
            self._age[:] = 0.0
        load = load_bin(context.batch_size)
        self._steps[load] = steps = self._steps.get(load, 0) + 1
        age_positions(self._age, self._seen, self._kept, observations)
        if context.step % _PERIOD:
            return None
        if self.measures_prompts(context):
            return None
        # A result fades within `_HORIZON` steps.
        self._found += (1.0 - self._found) * _PERIOD / _HORIZON
        horizon = min(_LEAST_HORIZON + steps, _HORIZON)
        evidence = np.clip(observations + self._kept, 0, _MOST_EVIDENCE)
        return self._search(forecast, evidence, horizon)

    def uncertain(self, forecast: StepForecast) -> list[int]:
        """Return each K whose ln step time over the best plan's has an error above `UNSURE`."""
        context, best = forecast.context, forecast.best
        batch, kmax = context.batch_size, self._capability.max_draft_tokens
        steers, ks = self._capability.steers_depth, self._ks.tolist()
        drafts = [int(np.minimum(context.draft_possible, k).sum()) for k in ks]
        depths = [k if steers else kmax for k in ks]
        _, times, _ = self.cost.goodput_covariance(
            batch,
            int(context.context_tokens.sum()),
            [*drafts, int(best.verify.sum())],
            [*depths, best.draft_depth if steers else kmax],
        )
        variance = np.diag(times) + times[-1, -1] - 2.0 * times[-1]
        return [k for k, each in zip(ks, variance, strict=False) if each > UNSURE**2]

    def _search(self, forecast: StepForecast, evidence: FloatArray, horizon: float) -> int | None:
        """Return the trial of the largest net gain; None if none is worth leaving the plan."""
        actions = self._actions(forecast)
        outlook = self._outlook(actions, forecast, evidence)
        net = self._net_gains(actions, outlook, horizon)
        # With one request, K and one draft more for some are the same: rounding must not choose.
        best = int(np.argmax(net >= net.max() - _SAME))
        repeats, trial = divmod(best, net.shape[1])
        if net[repeats, trial] <= _LEAST_NET:
            return None
        return DEEPER if trial > actions.plan else int(self._ks[trial])

    def _actions(self, forecast: StepForecast) -> Actions:
        """Return what the next step may run."""
        context, capability, best = forecast.context, self._capability, forecast.best
        kmax, steers = capability.max_draft_tokens, capability.steers_depth
        depth = best.draft_depth if steers else kmax
        deeper = depth if steers else round(sum_of(best.verify) / context.batch_size)
        found = actions_of(
            forecast.survival,
            context.draft_possible,
            best.verify,
            self._ks,
            self._found,
            steers,
            depth,
            kmax if capability.level is Level.UNIFORM else deeper,
            capability.cold_off,
        )
        return Actions(*found, len(self._ks))

    def _outlook(self, actions: Actions, forecast: StepForecast, evidence: FloatArray) -> Outlook:
        """Return what is believed of the actions' ln goodput, and what n runs of each would tell.

        What n steps of the plan tell is left out, because the plan runs without a trial.
        """
        context = forecast.context
        seconds, times, drift = self.cost.goodput_covariance(
            context.batch_size, sum_of(context.context_tokens), actions.verified, actions.depths
        )
        if context.shared_seconds:
            part = seconds / (seconds + context.shared_seconds)
            seconds = seconds + context.shared_seconds
            times, drift = times * np.outer(part, part), drift * np.outer(part, part)
        tokens, change, drifts = told_of(
            times,
            drift,
            self.cost.belief.error(seconds, forecast.prefill_seconds),
            actions.accepted,
            actions.observed,
            actions.hazard,
            1.0 / (1.0 + evidence) + HAZARD_DRIFT * self._age,
            forecast.taking_part,
            actions.plan,
        )
        return Outlook(seconds, tokens, change, drifts)

    def _net_gains(self, actions: Actions, outlook: Outlook, horizon: float) -> FloatArray:
        """Return gain minus cost, in steps, of n runs of each action: [n, A]."""
        cold = actions.depths[-1] < 0
        admitted = max(self._admitted, 0.0)
        return net_gains(*outlook, admitted, float(horizon), actions.plan, bool(cold))


@kernel(f"void(float64[::1], int64[::1], int64[::1], {INTS})", age_positions_loop)
def age_positions(age: FloatArray, seen: IntArray, kept: IntArray, observations: IntArray) -> None:
    """Count a step for positions [Kmax] that were not observed in it, in place.

    After a change of acceptance its model counts from 0; a few earlier observations still count.
    """
    anew = observations < seen
    kept[anew] = np.minimum(seen[anew], EVIDENCE_KEPT)
    age += 1.0
    age[observations > seen] = 0.0
    seen[:] = observations


@kernel(
    "Tuple((float64[:, ::1], float64[:, ::1], int64[::1], int64[::1], float64[::1]))("
    f"float64[:, :], {INTS}, {INTS}, int64[::1], float64[::1], boolean, int64, int64, boolean)",
    actions_loop,
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


@kernel(
    "Tuple((float64[::1], float64[:, :, ::1], float64[::1]))(float64[:, ::1], float64[:, ::1],"
    " float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], float64[::1], int64, int64)",
    told_loop,
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
    told = UNKNOWN * observed * hazard * (1.0 - hazard)
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


@kernel(
    "float64[:, ::1](float64[::1], float64[::1], float64[:, :, ::1], float64[::1], float64,"
    " float64, int64, boolean)",
    net_gains_loop,
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
        longest[-1] *= LONG
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
