"""Value of trying: K that are run for what they tell.

ln goodput of each uniform K, of the plan, of the plan with one draft more for some requests, and of
no drafter are correlated Gaussians: their step times by the belief about step times, their tokens
by the hazard of each position, whose logit has variance 1 / evidence + drift * age. What a trial
tells changes which of them seems best. Its knowledge gradient (Frazier, Powell, Dayanik, INFORMS J.
Computing 21, 2009) is the gain expected of that, in the two-point form, repeated n times:

    max over actions a of s_a u(gap_a / s_a),  u(z) = phi(z) - z (1 - Phi(z))

s_a is the standard deviation by which n trials change the difference between a and the plan. A
trial is run if gradient * horizon > n * cost, and the one with the largest difference is. The
horizon is the number of steps that this load has been run for, up to a bound (Lindy's law): of a
load that never returns, a trial tells nothing of use. It is no longer than what is told lasts: the
steps in which the belief drifts by s_a.
"""

from __future__ import annotations

import math

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
_LEAST_EVIDENCE, _MOST_EVIDENCE = 20, 1000
"""Observations of a position that count after acceptance has changed, and at most."""
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
        self._past: IntArray = np.zeros(capability.max_draft_tokens, dtype=np.int64)
        """Observations that tell of an acceptance that is gone."""
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

    def acceptance_changed(self) -> None:
        """Trust observations of acceptance no longer: acceptance has changed."""
        self._past = np.maximum(self._seen - _LEAST_EVIDENCE, self._past)

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
            self._past[:] = 0
            self._age[:] = 0.0
        load = load_bin(context.batch_size)
        self._steps[load] = steps = self._steps.get(load, 0) + 1
        self._age += 1.0
        self._age[observations > self._seen] = 0.0
        self._seen = observations.copy()
        if context.step % _PERIOD:
            return None
        if self.measures_prompts(context):
            return None
        self._found += (1.0 - self._found) * _PERIOD / _HORIZON
        horizon = min(_LEAST_HORIZON + steps, _HORIZON)
        evidence = np.clip(observations - self._past, 0, _MOST_EVIDENCE)
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
        context, cost, best = forecast.context, self.cost, forecast.best
        capability, ks = self._capability, self._ks
        batch, kmax = context.batch_size, capability.max_draft_tokens
        steers = capability.steers_depth
        position = np.arange(kmax)[:, None]
        possible = position < context.draft_possible
        ours = position < best.verify
        # [A, Kmax] expected tokens, and observations, by position: of each K, and of the plan.
        reached = np.vstack((np.ones((1, batch)), forecast.survival[:-1]))
        gained = np.sum(forecast.survival, axis=1, where=possible)
        tried = np.sum(reached, axis=1, where=possible)
        drafts = np.cumsum(np.concatenate(([0], possible.sum(axis=1))))
        use = (np.arange(kmax) < ks[:, None]) * self._found[:, None]
        by = np.vstack((use * gained, np.sum(forecast.survival, axis=1, where=ours)))
        shown = np.vstack((use * tried, np.sum(reached, axis=1, where=ours)))
        depth = best.draft_depth if steers else kmax
        verified = [int(n) for n in self._found * drafts[ks]] + [int(best.verify.sum())]
        depths = [int(k) if steers else kmax for k in ks] + [depth]
        deeper = depth if steers else round(float(best.verify.mean()))
        star = len(ks)
        if deeper < kmax and capability.level is not Level.UNIFORM:
            some = max(FRACTION, 1.0 / batch)
            by, shown = np.vstack((by, by[-1])), np.vstack((shown, shown[-1]))
            by[-1, deeper] += some * gained[deeper]
            shown[-1, deeper] += some * tried[deeper]
            verified.append(verified[-1] + max(int(some * batch), 1))
            depths.append(min(depth + 1, kmax))
        cold = capability.cold_off  # is no trial; other trials show whether it is better
        if cold:
            by, shown = np.vstack((by, 0.0 * by[-1])), np.vstack((shown, 0.0 * shown[-1]))
            verified.append(0)
            depths.append(-1)
        seconds, times, drift = cost.goodput_covariance(
            batch, int(sum(context.context_tokens.tolist())), verified, depths
        )
        if context.shared_seconds:
            part = seconds / (seconds + context.shared_seconds)
            seconds = seconds + context.shared_seconds
            times, drift = times * np.outer(part, part), drift * np.outer(part, part)
        tokens = forecast.taking_part + by.sum(axis=1)
        value = np.log(tokens / seconds)
        gap = np.maximum(value[star] - value, 0.0)
        gap[:star] += max(self._admitted, 0.0)
        if cold:
            gap[-1] = abs(value[star] - value[-1])
        hazard = np.clip(gained / np.maximum(tried, 1e-9), 1e-3, 1.0 - 1e-3)
        # d ln tokens / d logit of a position: all later tokens need it.
        later = np.cumsum(by[:, ::-1], axis=1)[:, ::-1]
        slope = later * (1.0 - hazard) / tokens[:, None]
        unsure = 1.0 / (1.0 + evidence) + _HAZARD_DRIFT * self._age
        told = _UNKNOWN * shown * hazard * (1.0 - hazard)
        n = _REPEATS[:, None]
        left = unsure - 1.0 / (1.0 / unsure + _REPEATS[:, None, None] * told)  # [n, E, Kmax]
        apart = times - times[star]  # [A, E]
        noise = cost.belief.error(seconds, forecast.prefill_seconds)
        change = apart**2 / (np.diag(times) + noise / n)[:, None, :]  # [n, A, E]
        change = change + (slope - slope[star]) ** 2 @ left.transpose(0, 2, 1)
        change = np.sqrt(np.maximum(change, 1e-16))
        # The result of a trial lasts until the belief has drifted by as much.
        drifts = np.diag(drift) + drift[star, star] - 2.0 * drift[star]
        drifts = drifts + _HAZARD_DRIFT * ((slope - slope[star]) ** 2).sum(axis=1)
        lasts = change**2 / np.maximum(drifts, 1e-12)[:, None]
        longest = np.full(len(gap), horizon)
        if cold:
            longest[-1] *= _LONG
        each = change * unit_loss(gap[:, None] / change) * np.minimum(longest[:, None], lasts)
        gain = each.max(axis=1)  # [n, E]
        lost = seconds / seconds[star] - tokens / tokens[star]
        lost[:star] += max(self._admitted, 0.0)
        net = gain - n * np.maximum(lost, 0.0)
        net[:, star] = 0.0
        if cold:
            net[:, -1] = 0.0
        repeats, trial = divmod(int(net.argmax()), net.shape[1])
        if net[repeats, trial] <= _LEAST_NET:
            return None
        return DEEPER if trial > star else int(ks[trial])


_erf = np.vectorize(math.erf, otypes=[np.float64])


def unit_loss(distance: FloatArray) -> FloatArray:
    """E max(z - distance, 0) of a standard normal z."""
    density = np.exp(-0.5 * distance * distance) / math.sqrt(2.0 * math.pi)
    result: FloatArray = density - distance * 0.5 * (1.0 - _erf(distance / math.sqrt(2.0)))
    return np.maximum(result, 0.0)
