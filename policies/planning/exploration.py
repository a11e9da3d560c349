"""Steps that measure something: trials, steps without drafting, probes while off.

`policies.planning.trials` chooses the trial; here the choice becomes a plan. A step verifies what
the step before has drafted, so a trial takes two steps. Requests that verify another draft than the
planner wants are drawn independently of anything about their drafts, and the probability of the
draw is returned as a propensity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptive_spec.policies.planning.loops import FRACTION
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.planning.trials import DEEPER, Trials
from adaptive_spec.policies.step_time.belief import KNEE
from adaptive_spec.policies.switch.modes import ModeMachine
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, Mode, SpecPlan, StepContext

# The first draft of a step is dear, the others are cheap.
_FRACTION_OF_NONE = 1.0 / 2.0
"""Share of the requests that verify one draft more where none speculates."""


class Explored(NamedTuple):
    """K_i and D with exploration.

    Attributes:
        verify: [B] K_i.
        depth: D.
        extended: some verify one draft more than was planned.
        propensity: [B] of these K_i; None where nothing was drawn.
    """

    verify: IntArray
    depth: int
    extended: bool = False
    propensity: FloatArray | None = None


class Exploring:
    """Measuring steps of one policy.

    Args:
        explorer: draws requests.
        trials: chooses them.
    """

    def __init__(self, explorer: Explorer, trials: Trials) -> None:
        self._explorer, self.trials = explorer, trials
        self.k_ahead: int | None = None
        """K that this step drafts for, to be measured in the next."""
        self._deeper = self._deeper_next = False

    def extended(self, forecast: StepForecast, verify: IntArray, depth: int) -> Explored:
        """Return the plan with padding filled; in a trial of acceptance some get one draft more.

        Args:
            forecast: of the step.
            verify: [B] K_i as planned.
            depth: D as planned.
        """
        available = forecast.context.draft_available
        verify, propensity = self._explorer.fill_padding(verify, available), None
        if self._deeper:
            fraction = FRACTION if verify.any() else _FRACTION_OF_NONE
            verify, propensity = self._explorer.extend(verify, available, fraction)
        if self._deeper_next:
            depth = self._explorer.deeper(depth)
        return Explored(verify, depth, self._deeper, propensity)

    def measured(
        self, forecast: StepForecast, observations: IntArray | None, wanted: int | None = None
    ) -> SpecPlan | None:
        """Return the step that measures a K, which the step before has drafted for.

        None where the step runs as planned. Asked once in each step that speculates.

        Args:
            forecast: of the step.
            observations: [Kmax] times each position has been observed; None: acceptance is not to
                be tried.
            wanted: K to be measured next, whatever it is worth.
        """
        context, best = forecast.context, forecast.best
        now, trial = self.k_ahead, self.trials.best_trial(forecast, observations)
        if wanted is not None:
            trial = wanted
        self._deeper, self._deeper_next = self._deeper_next, trial == DEEPER
        self.k_ahead = None if trial == DEEPER else trial
        if now is None:
            return None
        depth = best.draft_depth if self.k_ahead is None else self.k_ahead
        verify = np.minimum(context.draft_available, now)
        possible = int(np.minimum(context.draft_possible, now).sum())
        self.trials.note_share_found(now, int(verify.sum()) / max(possible, 1))
        return measuring(context, verify, depth, Mode.ON, f"measuring K = {now}")

    def without_drafter(self, context: StepContext) -> SpecPlan:
        """Return a plan without drafts and without the pass that keeps the drafter's state."""
        self._drop()
        none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
        return measuring(context, none, 0, Mode.OFF_COLD, "measuring a step without the drafter")

    def while_off(self, forecast: StepForecast, modes: ModeMachine) -> SpecPlan:
        """Return the plan of a step while speculation is off: K = 0, or a probe of a few."""
        context = forecast.context
        self._drop()
        if not modes.probing:
            none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            return forecast.predicted_plan(none, 0, modes.plan_mode, "speculation does not pay")
        verify, propensity = self._explorer.some(context.draft_available, modes.probe_requests)
        depth, mode = self.probe_depth, modes.plan_mode
        return forecast.predicted_plan(verify, depth, mode, "probing", propensity, measures=True)

    def _drop(self) -> None:
        self.k_ahead, self._deeper_next = None, False

    @property
    def probe_depth(self) -> int:
        """D while probing."""
        return self._explorer.deeper(0)


def first_k(context: StepContext, survival: FloatArray) -> int:
    """Return the K >= 1, at most the engine's, that a roofline expects most tokens per second of.

    Args:
        context: a step before any was timed.
        survival: [Kmax, B] s_ij.
    """
    ks = np.array([k for k in context.capability.uniform_values if 0 < k <= context.engine_k])
    if not ks.size:
        return context.engine_k
    tokens = 1.0 + np.cumsum(survival.mean(axis=1))[ks - 1]
    passes = np.maximum(context.batch_size * (1.0 + ks) / KNEE, 1.0)
    return int(ks[np.argmax(tokens / passes)])


def measuring(
    context: StepContext, verify: IntArray, depth: int, mode: Mode, reason: str
) -> SpecPlan:
    """Return a plan that measures, without a prediction."""
    return SpecPlan(
        step=context.step,
        verify=verify,
        draft_depth=depth,
        mode=mode,
        reason=reason,
        measures=True,
    )


class Explorer:
    """Draws requests that verify other drafts than the planner wants.

    Args:
        capability: of the engine.
        seed: of the draws.
    """

    def __init__(self, capability: Capability, seed: int) -> None:
        self._capability = capability
        self._random = np.random.default_rng(seed)

    def deeper(self, depth: int) -> int:
        """Return the smallest depth above this one that the engine can run; else this one."""
        above = [k for k in self._capability.uniform_values if k > depth]
        return above[0] if above else depth

    def extend(
        self, verify: IntArray, available: IntArray, fraction: float = FRACTION
    ) -> tuple[IntArray, FloatArray]:
        """Add a draft for a random fraction of the requests; return K_i and propensities [B]."""
        batch = len(verify)
        if self._capability.level is Level.UNIFORM:
            k = self.deeper(int(verify.max(initial=0)))
            return np.minimum(available, k), np.ones(batch)
        can = verify < available
        chosen = can & (self._random.random(batch) < fraction)
        if not chosen.any() and can.any():
            # A small batch may draw nobody: then one request is drawn, each as likely.
            chosen[self._random.choice(np.flatnonzero(can))] = True
        count = max(int(can.sum()), 1)
        likely = fraction + (1.0 - fraction) ** count / count
        propensity = np.where(can & (count > 1), np.where(chosen, likely, 1.0 - likely), 1.0)
        return verify + chosen, propensity

    def some(self, available: IntArray, requests: int) -> tuple[IntArray, FloatArray]:
        """Return the smallest K >= 1 for a few random requests, 0 for the others, and propensities.

        At level UNIFORM all requests get that K. [B] each.
        """
        k = self.deeper(0)
        if self._capability.level is Level.UNIFORM:
            return np.minimum(available, k), np.ones(len(available))
        verify = np.zeros_like(available)
        propensity = np.ones(len(available))
        can = np.flatnonzero(available)
        chosen = self._random.permutation(can)[:requests]
        verify[chosen] = np.minimum(available[chosen], k)
        if requests < can.size:
            propensity[can] = 1.0 - requests / can.size
            propensity[chosen] = requests / can.size
        return verify, propensity

    def fill_padding(self, verify: IntArray, available: IntArray) -> IntArray:
        """Return K_i with drafts added that fill the captured batch size, at no cost."""
        buckets = self._capability.token_buckets
        if not buckets or self._capability.level is Level.UNIFORM:
            return verify
        tokens = len(verify) + int(verify.sum())
        free = next((size for size in buckets if size >= tokens), tokens) - tokens
        if free <= 0:
            return verify
        can = np.flatnonzero(verify < available)
        chosen = self._random.permutation(can)[:free]
        filled = verify.copy()
        filled[chosen] += 1
        return filled
