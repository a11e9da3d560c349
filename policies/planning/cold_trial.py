"""Schedule of steps without the drafter, a few for each doubling of the load.

Where the depth is fixed and the drafter has a state, each step pays for the same passes, whatever K
is. Then their time cannot be separated from the rest of the step, and how fast a step without
speculation would be is unknown: the pass of a block drafter may take a tenth of a step with one
request, and two thirds of it with a hundred. A few steps without the drafter measure it. They are
not free: the requests alive lose their drafter, and decode without drafts to their end.

So these steps run once the possible loss reaches their cost (ski rental: at most twice the loss of
the best choice). The possible loss is counted as if the passes took as long as those of a drafter
of half the target's work. The cost is half a request's lifetime at the gain of speculation over K =
0. Where speculation gains more than leaving the drafter out could, the sum stays below the cost.
Two loads timed so give the time of a pass and its share by request.
"""

from __future__ import annotations

from adaptive_spec.policies.planning.step_forecast import OffForecast, StepForecast
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.step import Capability, Mode, StepContext

_LARGEST_DRAFTER = 0.5
"""Work of the largest drafter, relative to its target's for as many tokens."""
_LEAST_REST = 0.1
"""Share of a step at K = 0 that the target takes at least."""
# K and acceptance of the load are known after so many.
_LEAST_STEPS = 100
"""Steps of a load before its first step without the drafter."""
_STEPS = 8
"""Steps in a row; the first alone has cost the requests their drafter."""
_MEMORY_STEPS = 50.0
"""Time constant of the means of a load's plans (steps)."""
_REMEMBERED_STEPS = 2000.0
"""Steps whose gains and losses count together: one bad request is no reason."""
_MARGIN = 0.01
"""Relative gain that a handful of timed steps cannot tell from none."""
_REPLACED = 0.5
"""Share of the requests that have a drafter again when speculation is judged as ever."""


class ColdTrial:
    """Schedule of steps without the drafter, a few for each doubling of the load."""

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._lost: dict[int, float] = {}
        self._steps: dict[int, int] = {}
        self._left = 0
        self._seconds = self._tokens = 0.0
        """Means of the last plans, and of the tokens that they expected of a request."""
        self._unjudged = False
        self._recovering = False

    @staticmethod
    def needed(capability: Capability) -> bool:
        """Whether nothing else tells the time of the drafter's passes."""
        return capability.off_pass and capability.cold_off and not capability.steers_depth

    def due(self, forecast: StepForecast, lifetime: float) -> bool:
        """Whether this step is to run without the drafter; call once per step that speculates.

        Args:
            forecast: of the step.
            lifetime: mean seconds that a request decodes.
        """
        if self._left:
            self._left -= 1
            return True
        batch_size = forecast.context.batch_size
        if self._unjudged or self._recovering or self._cost.timed_cold(batch_size):
            return False
        load = load_bin(batch_size)
        self._steps[load] = steps = self._steps.get(load, 0) + 1
        seconds = forecast.best.seconds
        tokens = forecast.counted(forecast.best_tokens) / batch_size
        weight = max(1.0 / steps, 1.0 / _MEMORY_STEPS)
        self._seconds += weight * (seconds - self._seconds)
        self._tokens += weight * (tokens - self._tokens)
        warm = forecast.seconds_of(0, 0, Mode.OFF_WARM)
        rest = warm - _LARGEST_DRAFTER * float(forecast.verify_seconds[-1])
        lost = (1.0 - 1.0 / _REMEMBERED_STEPS) * self._lost.get(load, 0.0)
        self._lost[load] = lost = lost + seconds - tokens * max(rest, _LEAST_REST * warm)
        gain = tokens * warm / seconds - 1.0  # gain of the plan over K = 0
        if steps < _LEAST_STEPS or lost < 0.5 * lifetime * max(gain, 0.0):
            return False
        self._lost[load] = 0.0
        self._left = _STEPS - 1
        self._unjudged = True
        return True

    def pays(self, forecast: StepForecast) -> bool | None:
        """Return whether speculation pays, once the steps without the drafter are timed; else None.

        The requests alive have lost their drafter by then, so the plans before the trial count.
        """
        if not self._unjudged or self._left:
            return None
        if not self._cost.timed_cold(forecast.context.batch_size):
            return None
        self._unjudged = False
        off_seconds = OffForecast(forecast).off_seconds
        self._recovering = self._tokens * off_seconds > (1.0 + _MARGIN) * self._seconds
        return self._recovering

    def recovering(self, context: StepContext) -> bool:
        """Most requests have lost their drafter to a trial, and cannot show what it gains."""
        if self._recovering:
            drafted = int((context.draft_possible > 0).sum())
            out = 0 if context.opted_out is None else int(context.opted_out.sum())
            self._recovering = drafted < _REPLACED * (context.batch_size - out)
        return self._recovering or self._unjudged
