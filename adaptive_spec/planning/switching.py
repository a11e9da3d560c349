"""Speculation on and off, and the step times that decide about it.

The mode machine (`adaptive_spec.planning.on_off.modes`) is told what each planned step was expected
to take and bring, the cost model what it took. A step whose drafter did not even run its own pass
(OFF-cold) is remembered until its outcome arrives: its time says nothing about that pass.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from adaptive_spec.cost.model import CostModel
from adaptive_spec.planning.on_off.modes import ModeMachine
from adaptive_spec.planning.step_forecast import Outlook
from adaptive_spec.step import Mode, SpecPlan, StepOutcome

_LEAST_STEPS, _ENOUGH_STEPS = 60, 200
"""Steps measured before speculation may stop: at every K of the load, and at any."""
_REMEMBERED_STEPS = 8


class Switching:
    """Drives a mode machine and a cost model, step by step.

    Args:
        modes: what it is about.
        cost: step times.
        profiled: the cost model began with a profile, so that step times are known at once.
    """

    def __init__(self, modes: ModeMachine, cost: CostModel, *, profiled: bool) -> None:
        self.modes = modes
        self._cost = cost
        self._profiled = profiled
        self._cold_steps: deque[int] = deque(maxlen=_REMEMBERED_STEPS)

    def decide(self, outlook: Outlook) -> tuple[Mode, bool]:
        """The mode of this step; and whether a probe has just brought speculation back.

        Then what is known of acceptance is from before it went off.
        """
        context, before = outlook.context, self.modes.mode
        mode = self.modes.step(
            outlook,
            batch_size=context.batch_size,
            prompts=context.prefill_tokens > 0,
            now=context.now,
            ready=self._knows_enough(context.batch_size),
        )
        back = mode is Mode.ON and before is not Mode.ON
        return mode, back and self.modes.back_by_probe

    def planned(self, plan: SpecPlan, outlook: Outlook) -> None:
        """This plan is going to run."""
        if plan.predicted_seconds > 0.0:
            seconds = plan.predicted_seconds - outlook.prefill_seconds
            self.modes.ran(seconds=seconds, tokens=plan.predicted_tokens)
        if self.modes.cold:
            self._cold_steps.append(plan.step)

    def learn(self, outcome: StepOutcome) -> None:
        """Take up a finished step: its time, and how its first drafts fared."""
        steps = self._cold_steps
        while steps and steps[0] < outcome.step:
            steps.popleft()
        # Where another policy's plan ran instead (`ensemble`), the drafter may have drafted.
        cold = bool(steps) and steps[0] == outcome.step and outcome.draft_depth == 0
        self._cost.learn(outcome, cold=cold)
        self.modes.scored(
            samples=int(np.count_nonzero(outcome.verified)),
            accepted=int(np.count_nonzero(outcome.accepted)),
        )

    def _knows_enough(self, batch_size: int) -> bool:
        """Step times are known well enough to stop speculating because of them."""
        cost = self._cost
        if self._profiled or cost.samples >= _ENOUGH_STEPS:
            return True
        return cost.samples >= _LEAST_STEPS and not cost.missing_depths(batch_size)
