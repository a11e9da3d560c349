"""Steps that measure something: trials, steps without drafting, probes while off.

`policies.planning.value` chooses the trial, `policies.planning.exploration` draws requests; here
the choices become plans. A step verifies what the step before has drafted, so a trial takes two
steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptive_spec.policies.planning.exploration import FRACTION, FRACTION_OF_NONE, Explorer
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.planning.value import DEEPER, Value
from adaptive_spec.policies.step_time.coverage import load_bin
from adaptive_spec.policies.switch.modes import ModeMachine
from adaptive_spec.step import FloatArray, IntArray, Level, Mode, SpecPlan, StepContext

# At a fixed depth, the passes' time cannot be told from the rest of a step otherwise.
_WITHOUT_DRAFTING, _WITHOUT_DRAFTING_PERIOD = 3, 4
"""Steps without drafting per load, and their distance (steps)."""


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
        value: chooses trials.
    """

    def __init__(self, explorer: Explorer, value: Value) -> None:
        self._explorer, self.value = explorer, value
        self._k: int | None = None
        """K that was drafted for, to be tried in this step."""
        self._deeper = self._deeper_next = False
        self._without_drafting: dict[int, int] = {}

    def costs_changed(self) -> None:
        """Step times have changed."""
        self._without_drafting.clear()

    def extended(self, forecast: StepForecast, verify: IntArray, depth: int) -> Explored:
        """The plan with padding filled and, in a trial of acceptance, one draft more for some.

        Args:
            forecast: of the step.
            verify: [B] K_i as planned.
            depth: D as planned.
        """
        available = forecast.context.draft_available
        verify, propensity = self._explorer.fill_padding(verify, available), None
        if self._deeper:
            fraction = FRACTION if verify.any() else FRACTION_OF_NONE
            verify, propensity = self._explorer.extend(verify, available, fraction)
        if self._deeper_next:
            depth = self._explorer.deeper(depth)
        return Explored(verify, depth, self._deeper, propensity)

    def tried(self, forecast: StepForecast, observations: IntArray | None) -> SpecPlan | None:
        """Verify the K that was drafted for to be tried, or draft for the next trial.

        None where the step runs as planned. Asked once in each step that speculates.

        Args:
            forecast: of the step.
            observations: [Kmax] times each position has been observed; None: acceptance is not to
                be tried.
        """
        context, best = forecast.context, forecast.best
        if self._leaves_drafting_out(context):
            none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            return unpredicted(context, none, 0, Mode.OFF_WARM, "measuring a step without drafting")
        now, trial = self._k, self.value.best_trial(forecast, observations)
        self._deeper, self._deeper_next = self._deeper_next, trial == DEEPER
        self._k = None if trial == DEEPER else trial
        if now is None and self._k is None:
            return None
        depth = best.draft_depth if self._k is None else self._k
        if now is None:
            return unpredicted(
                context, best.verify, depth, Mode.ON, f"drafting {depth} to measure it"
            )
        verify = np.minimum(context.draft_available, now)
        wanted = int(np.minimum(context.draft_possible, now).sum())
        self.value.tried(now, int(verify.sum()) / max(wanted, 1))
        return unpredicted(context, verify, depth, Mode.ON, f"measuring K = {now}")

    def without_drafter(self, context: StepContext) -> SpecPlan:
        """Neither drafts nor the pass that keeps the drafter's state."""
        self._drop()
        none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
        return unpredicted(context, none, 0, Mode.OFF_COLD, "measuring a step without the drafter")

    def while_off(self, forecast: StepForecast, modes: ModeMachine) -> SpecPlan:
        """K = 0 for all; while probing, one draft for a few."""
        context = forecast.context
        self._drop()
        if not modes.probing:
            none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            return forecast.plan(none, 0, modes.plan_mode, "speculation does not pay")
        verify, propensity = self._explorer.some(context.draft_available, modes.probe_requests)
        return forecast.plan(verify, self.probe_depth, modes.plan_mode, "probing", propensity)

    def _drop(self) -> None:
        self._k, self._deeper_next = None, False

    def _leaves_drafting_out(self, context: StepContext) -> bool:
        capability = context.capability
        if capability.level is Level.UNIFORM or capability.steers_depth or self._k is not None:
            return False
        load = load_bin(context.batch_size)
        made = self._without_drafting.get(load, 0)
        due = context.step % _WITHOUT_DRAFTING_PERIOD == 0 and made < _WITHOUT_DRAFTING
        if not due or self.value.measures_prompts(context):
            return False
        self._without_drafting[load] = made + 1
        return True

    @property
    def probe_depth(self) -> int:
        """D while probing."""
        return self._explorer.deeper(0)


def engine_verify(context: StepContext) -> IntArray:
    """[B] K_i of the engine itself."""
    return np.minimum(context.draft_available, context.engine_k)


def unpredicted(
    context: StepContext, verify: IntArray, depth: int, mode: Mode, reason: str
) -> SpecPlan:
    """Return a plan without a prediction."""
    return SpecPlan(step=context.step, verify=verify, draft_depth=depth, mode=mode, reason=reason)
