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

from typing import NamedTuple

import numpy as np

from adaptive_spec.per_request import sum_of
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.planning.value_kernels import (
    HAZARD_DRIFT,
    actions_of,
    grow,
    net_gains,
    told_of,
)
from adaptive_spec.policies.step_time.model import UNSURE, CostModel, load_bin
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, StepContext

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
        grow(self._age, self._seen, self._kept, observations)
        if context.step % _PERIOD:
            return None
        if self.measures_prompts(context):
            return None
        self._found += (1.0 - self._found) * _PERIOD / _HORIZON
        horizon = min(_LEAST_HORIZON + steps, _HORIZON)
        evidence = np.clip(observations + self._kept, 0, _MOST_EVIDENCE)
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

        What n steps of the plan tell is left out: it is told without a trial.
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
