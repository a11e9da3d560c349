"""What runs besides what the planner wants: one draft more, K nobody has timed, probes.

`adaptive_spec.planning.exploration` says how deep and for whom, `CostProbes` which K; here it
becomes plans. What is verified in a step was drafted in the step before, so both take two steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptive_spec.planning.cost_probes import CostProbes
from adaptive_spec.planning.exploration import FRACTION, FRACTION_OF_NONE, LATE_PERIOD, Explorer
from adaptive_spec.planning.on_off.modes import ModeMachine
from adaptive_spec.planning.step_forecast import Outlook
from adaptive_spec.step import BoolArray, FloatArray, IntArray, Mode, SpecPlan, StepContext


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
        enabled: without it, only probes while off remain.
    """

    def __init__(self, explorer: Explorer, cost_probes: CostProbes, *, enabled: bool) -> None:
        self._explorer = explorer
        self._cost_probes = cost_probes
        self._enabled = enabled
        self._extend_next = False

    @property
    def measuring(self) -> bool:
        """What is drafted now is to be timed, all of it."""
        return self._cost_probes.pending

    def extended(
        self, outlook: Outlook, verify: IntArray, depth: int, observations: IntArray
    ) -> Explored:
        """The plan with padding filled and, now and then, one draft more for some requests.

        Args:
            outlook: of the step.
            verify: [B] K_i as planned.
            depth: D as planned.
            observations: [Kmax] times each position has been observed.
        """
        if not self._enabled:
            return Explored(verify, depth)
        context, deeper = outlook.context, self._explorer.deeper(depth)
        planned = verify
        extends, available = self._extend_next, context.draft_available
        propensity: FloatArray | None = None
        verify = self._explorer.fill_padding(verify, available)
        if extends:
            fraction = FRACTION if verify.any() else FRACTION_OF_NONE
            verify, propensity = self._explorer.extend(verify, available, fraction)
        self._extend_next = self._explorer.due(
            context.step,
            depth,
            observations,
            nobody=not verify.any(),
            may_pay=lambda: outlook.deeper_may_pay(planned, depth, deeper),
        )
        if self._extend_next:
            depth = deeper
        return Explored(verify, depth, extends, propensity)

    def extend_while_drafting(self, context: StepContext) -> None:
        """The same where drafts are admitted as they are made: `draw_extended` is asked then.

        Confident requests go deep by themselves; this is against a prejudice.
        """
        self._extend_next = self._enabled and context.step % LATE_PERIOD == 0

    def draw_extended(self, batch: int) -> BoolArray | None:
        """[B] requests that keep one draft more than is worth it; None in most steps."""
        return self._explorer.draw(batch, FRACTION) if self._extend_next else None

    def timed(self, context: StepContext, outlook: Outlook | None) -> SpecPlan | None:
        """Run a K that this load has not been timed with, if there is one that may be worth it.

        Args:
            context: the step.
            outlook: of it; None while no step time is known.
        """
        if not self._enabled:
            return None
        timed = self._cost_probes.to_verify(context)
        if timed is not None:
            depth = context.engine_k if outlook is None else outlook.best.draft_depth
            reason = f"measuring K = {int(timed.max(initial=0))}"
            return unpredicted(context, timed, depth, Mode.ON, reason)
        if outlook is not None and self._cost_probes.leaves_drafting_out(context):
            none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            return unpredicted(context, none, 0, Mode.OFF_WARM, "measuring a step without drafting")
        k = self._cost_probes.to_draft(context, outlook)
        if k is None:
            return None
        verify = engine_verify(context) if outlook is None else outlook.best.verify
        return unpredicted(context, verify, k, Mode.ON, f"drafting {k} to measure it")

    def while_off(self, outlook: Outlook, modes: ModeMachine) -> SpecPlan:
        """K = 0 for all; while probing, one draft for a few."""
        context = outlook.context
        self._cost_probes.drop()
        self._extend_next = False
        if not modes.probing:
            none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            return outlook.plan(none, 0, modes.plan_mode, "speculation does not pay")
        verify, propensity = self._explorer.some(context.draft_available, modes.probe_requests)
        return outlook.plan(verify, self.probe_depth, modes.plan_mode, "probing", propensity)

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
