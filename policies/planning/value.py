"""Value of trying: K that are run for what they tell.

ln goodput of each uniform K, of the plan, of the plan with one draft more for some requests, and of
no drafter are correlated Gaussians: their step times by the belief about step times, their tokens
by the hazard of each position, whose logit has variance 1 / evidence + drift * age. What a trial
tells changes which of them seems best. Its knowledge gradient (Frazier, Powell, Dayanik, INFORMS J.
Computing 21, 2009) is the gain expected of that, in the two-point form, repeated n times:

    max over actions a of s_a u(gap_a / s_a),  u(z) = phi(z) - z (1 - Phi(z))

s_a is the standard deviation by which n trials change the difference between a and the plan, beyond
what n steps of the plan itself would tell. A trial is run if gradient * horizon > n * cost, and the
one with the largest difference is. The horizon is the number of steps that this load has been run
for, up to a bound (Lindy's law): of a load that never returns, a trial tells nothing of use. It is
no longer than what is told lasts: the steps in which the belief drifts by s_a.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_time.model import UNSURE, CostModel, load_bin
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, StepContext

_LEAST_HORIZON, _HORIZON = 60.0, 500.0
"""Steps in which what a trial tells is of use."""
_LONG = 10.0
"""Factor of the horizon of a trial without the drafter."""
_LEAST_NET = 0.05
"""Gain of a trial, in steps, below which it is not worth leaving the plan."""
_PERIOD = 4
"""Steps from one search for a trial to the next."""
_REPEATS: FloatArray = np.array([1.0, 4.0, 16.0])
_HAZARD_DRIFT = 3e-5
"""Variance per step of a position's logit while the position is not observed."""
_UNKNOWN = 0.5
"""Share of an outcome that tells of the position, not of its request."""
_EVIDENCE_KEPT, _MOST_EVIDENCE = 20, 1000
"""Observations of a position that still count after acceptance has changed, and most that count."""
_MOSTLY_PROMPTS = 4
"""Prompt tokens over most drafts from which a step tells of prompts alone."""
_ADMITTED_RATE = 1.0 / 16.0

FRACTION = 1.0 / 8.0
"""Share of the requests that verify one draft more in a trial of acceptance."""
# The first draft of a step is dear, the others are cheap.
FRACTION_OF_NONE = 1.0 / 2.0
"""That share where no request speculates."""
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
    verified: list[int]
    depths: list[int]
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


class Value:
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

    def tried(self, k: int, share: float) -> None:
        """Take up the share of the drafts that a trial of K wanted, and had."""
        self._found[self._ks == k] = share

    def ran(self, gain: float) -> None:
        """Take up ln goodput of a step's plan over the best plan by history."""
        self._admitted += _ADMITTED_RATE * (gain - self._admitted)

    def measures_prompts(self, context: StepContext) -> bool:
        """Whether the time of this step would tell of its prompts alone."""
        most_tokens = context.batch_size * (1 + self._capability.max_draft_tokens)
        return context.prefill_tokens > _MOSTLY_PROMPTS * most_tokens

    def best_trial(self, forecast: StepForecast, observations: IntArray | None) -> int | None:
        """K to try in the next step, `DEEPER`, or None.

        Args:
            forecast: of this step.
            observations: [Kmax] times each position has been observed.
        """
        context = forecast.context
        if observations is None:
            observations = np.full(len(self._seen), _MOST_EVIDENCE)
            self._age[:] = 0.0
        load = load_bin(context.batch_size)
        self._steps[load] = steps = self._steps.get(load, 0) + 1
        self._age += 1.0
        # Acceptance has changed, and its model counts anew.
        anew = observations < self._seen
        self._kept[anew] = np.minimum(self._seen[anew], _EVIDENCE_KEPT)
        self._age[observations > self._seen] = 0.0
        self._seen = observations.copy()
        if context.step % _PERIOD:
            return None
        if self.measures_prompts(context):
            return None
        self._found += (1.0 - self._found) * _PERIOD / _HORIZON
        horizon = min(_LEAST_HORIZON + steps, _HORIZON)
        evidence = np.minimum(observations + self._kept, _MOST_EVIDENCE)
        return self._search(forecast, evidence, horizon)

    def uncertain(self, forecast: StepForecast) -> list[int]:
        """K of whose step time, relative to the best plan's, little is known."""
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
        repeats, trial = divmod(int(net.argmax()), net.shape[1])
        if net[repeats, trial] <= _LEAST_NET:
            return None
        return DEEPER if trial > actions.plan else int(self._ks[trial])

    def _actions(self, forecast: StepForecast) -> Actions:
        """Return what the next step may run."""
        context, capability, best = forecast.context, self._capability, forecast.best
        kmax, steers, plan = capability.max_draft_tokens, capability.steers_depth, len(self._ks)
        position = np.arange(kmax)[:, None]
        possible, ours = position < context.draft_possible, position < best.verify
        reached = np.vstack((np.ones((1, context.batch_size)), forecast.survival[:-1]))
        accepted = np.sum(forecast.survival, axis=1, where=possible)
        observed = np.sum(reached, axis=1, where=possible)
        drafts = np.cumsum(np.concatenate(([0], possible.sum(axis=1))))
        # The order is: each K; the plan; one draft more for some requests; no drafter.
        use = (np.arange(kmax) < self._ks[:, None]) * self._found[:, None]
        rows = [*use * accepted, np.sum(forecast.survival, axis=1, where=ours)]
        seen = [*use * observed, np.sum(reached, axis=1, where=ours)]
        depth = best.draft_depth if steers else kmax
        verified = [int(n) for n in self._found * drafts[self._ks]] + [int(best.verify.sum())]
        depths = [int(k) if steers else kmax for k in self._ks] + [depth]
        deeper = depth if steers else round(float(best.verify.mean()))
        if deeper < kmax and capability.level is not Level.UNIFORM:
            some = max(FRACTION, 1.0 / context.batch_size) * (np.arange(kmax) == deeper)
            rows.append(rows[plan] + some * accepted)
            seen.append(seen[plan] + some * observed)
            verified.append(verified[plan] + max(int(some[deeper] * context.batch_size), 1))
            depths.append(min(depth + 1, kmax))
        if capability.cold_off:  # is no trial; other trials show whether it is better
            rows.append(np.zeros(kmax))
            seen.append(np.zeros(kmax))
            verified.append(0)
            depths.append(-1)
        hazard = np.clip(accepted / np.maximum(observed, 1e-9), 1e-3, 1.0 - 1e-3)
        return Actions(np.array(rows), np.array(seen), verified, depths, hazard, plan)

    def _outlook(self, actions: Actions, forecast: StepForecast, evidence: FloatArray) -> Outlook:
        """Return what is believed of the actions' ln goodput, and what n runs of each would tell.

        What n steps of the plan tell is left out: it is told without a trial.
        """
        context, plan = forecast.context, actions.plan
        seconds, times, drift = self.cost.goodput_covariance(
            context.batch_size,
            int(sum(context.context_tokens.tolist())),
            actions.verified,
            actions.depths,
        )
        if context.shared_seconds:
            part = seconds / (seconds + context.shared_seconds)
            seconds = seconds + context.shared_seconds
            times, drift = times * np.outer(part, part), drift * np.outer(part, part)
        tokens = forecast.taking_part + actions.accepted.sum(axis=1)
        hazard = actions.hazard
        # d ln tokens / d logit of a position: all later tokens need it.
        later = np.cumsum(actions.accepted[:, ::-1], axis=1)[:, ::-1]
        slope = later * (1.0 - hazard) / tokens[:, None]
        slope = slope - slope[plan]
        told = _UNKNOWN * actions.observed * hazard * (1.0 - hazard)
        n = _REPEATS[:, None]
        noise = self.cost.belief.error(seconds, forecast.prefill_seconds)
        # [n, A, A] and [n, 1, Kmax]: covariance and variance after n steps of the plan.
        by_plan = times[plan] / np.sqrt(times[plan, plan] + noise[plan] / n)
        times = times - by_plan[:, :, None] * by_plan[:, None, :]
        unsure = 1.0 / (1.0 + evidence) + _HAZARD_DRIFT * self._age
        unsure = 1.0 / (1.0 / unsure + n * told[plan])[:, None, :]
        left = unsure - 1.0 / (1.0 / unsure + n[:, :, None] * told)  # [n, E, Kmax]
        apart = times - times[:, plan, None, :]  # [n, A, E]
        change = apart**2 / (np.diagonal(times, axis1=1, axis2=2) + noise / n)[:, None, :]
        change = change + slope**2 @ left.transpose(0, 2, 1)
        drifts = np.diag(drift) + drift[plan, plan] - 2.0 * drift[plan]
        drifts = drifts + _HAZARD_DRIFT * (slope**2).sum(axis=1)
        return Outlook(seconds, tokens, np.sqrt(np.maximum(change, 1e-16)), drifts)

    def _net_gains(self, actions: Actions, outlook: Outlook, horizon: float) -> FloatArray:
        """Return gain minus cost, in steps, of n runs of each action: [n, A]."""
        plan, ks = actions.plan, slice(0, actions.plan)
        tokens, seconds, change = outlook.tokens, outlook.seconds, outlook.change
        cold = actions.depths[-1] < 0
        value = np.log(tokens / seconds)
        gap = np.maximum(value[plan] - value, 0.0)
        gap[ks] += max(self._admitted, 0.0)
        longest = np.full(len(gap), horizon)
        if cold:
            gap[-1] = abs(value[plan] - value[-1])
            longest[-1] *= _LONG
        # The result of a trial lasts until the belief has drifted by as much.
        lasts = change**2 / np.maximum(outlook.drifts, 1e-12)[:, None]
        each = change * unit_loss(gap[:, None] / change) * np.minimum(longest[:, None], lasts)
        lost = seconds / seconds[plan] - tokens / tokens[plan]
        lost[ks] += max(self._admitted, 0.0)
        net: FloatArray = each.max(axis=1) - _REPEATS[:, None] * np.maximum(lost, 0.0)
        net[:, plan] = 0.0
        if cold:
            net[:, -1] = 0.0
        return net


_erf = np.vectorize(math.erf, otypes=[np.float64])


def unit_loss(distance: FloatArray) -> FloatArray:
    """E max(z - distance, 0) of a standard normal z."""
    density = np.exp(-0.5 * distance * distance) / math.sqrt(2.0 * math.pi)
    result: FloatArray = density - distance * 0.5 * (1.0 - _erf(distance / math.sqrt(2.0)))
    return np.maximum(result, 0.0)
