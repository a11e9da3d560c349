"""Exploration plans: one draft deeper, timing of untimed K, probes while off.

`policies.planning.exploration` chooses depth and requests, `CostProbes` chooses the K to time;
here the choices become plans. A step verifies what the step before has drafted, so each takes two
steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptive_spec.policies.planning.cost_probes import CostProbes
from adaptive_spec.policies.planning.exploration import (
    FRACTION,
    FRACTION_OF_NONE,
    Explorer,
)
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.switch.modes import ModeMachine
from adaptive_spec.step import FloatArray, IntArray, Mode, SpecPlan, StepContext


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
    """Exploration of one policy.

    Args:
        explorer: draws requests.
        cost_probes: names K to time.
    """

    def __init__(self, explorer: Explorer, cost_probes: CostProbes) -> None:
        self._explorer = explorer
        self._cost_probes = cost_probes
        self._extend_next = False

    def costs_changed(self) -> None:
        """Step times have changed: time everything anew."""
        self._cost_probes.start_again()

    def extended(
        self, forecast: StepForecast, verify: IntArray, depth: int, observations: IntArray
    ) -> Explored:
        """The plan with padding filled and, now and then, one draft more for some requests.

        Args:
            forecast: of the step.
            verify: [B] K_i as planned.
            depth: D as planned.
            observations: [Kmax] times each position has been observed.
        """
        context, explorer = forecast.context, self._explorer
        planned = verify
        extends, available = self._extend_next, context.draft_available
        propensity: FloatArray | None = None
        verify = explorer.fill_padding(verify, available)
        if extends:
            fraction = FRACTION if verify.any() else FRACTION_OF_NONE
            verify, propensity = explorer.extend(verify, available, fraction)
        self._extend_next = explorer.due(
            context.step,
            depth,
            observations,
            nobody=not any(verify.tolist()),
            may_gain=lambda: forecast.deeper_may_gain(
                planned, depth, explorer.deeper(depth), int(observations[depth])
            ),
        )
        if self._extend_next:
            depth = explorer.deeper(depth)
        return Explored(verify, depth, extends, propensity)

    def timed(self, context: StepContext, forecast: StepForecast | None) -> SpecPlan | None:
        """Run a K that this load has not been timed with, if there is one that may be worth it.

        Args:
            context: the step.
            forecast: of it; None while no step time is known.
        """
        timed = self._cost_probes.to_verify(context)
        if timed is not None:
            depth = context.engine_k if forecast is None else forecast.best.draft_depth
            reason = f"measuring K = {int(timed.max(initial=0))}"
            return unpredicted(context, timed, depth, Mode.ON, reason)
        if forecast is not None and self._cost_probes.leaves_drafting_out(context):
            none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            return unpredicted(context, none, 0, Mode.OFF_WARM, "measuring a step without drafting")
        k = self._cost_probes.to_draft(context, forecast)
        if k is None:
            return None
        verify = engine_verify(context) if forecast is None else forecast.best.verify
        return unpredicted(context, verify, k, Mode.ON, f"drafting {k} to measure it")

    def without_drafter(self, context: StepContext) -> SpecPlan:
        """Neither drafts nor the pass that keeps the drafter's state; nothing else is timed."""
        self._cost_probes.drop()
        self._extend_next = False
        none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
        return unpredicted(context, none, 0, Mode.OFF_COLD, "measuring a step without the drafter")

    def while_off(self, forecast: StepForecast, modes: ModeMachine) -> SpecPlan:
        """K = 0 for all; while probing, one draft for a few."""
        context = forecast.context
        self._cost_probes.drop()
        self._extend_next = False
        if not modes.probing:
            none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            return forecast.plan(none, 0, modes.plan_mode, "speculation does not pay")
        verify, propensity = self._explorer.some(context.draft_available, modes.probe_requests)
        return forecast.plan(verify, self.probe_depth, modes.plan_mode, "probing", propensity)

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
    """A plan that says nothing of what it will bring."""
    return SpecPlan(step=context.step, verify=verify, draft_depth=depth, mode=mode, reason=reason)
