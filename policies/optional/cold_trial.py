"""K = 0 without the drafter's passes as one more thing to try, where each step pays for all passes.

On an engine of fixed depth no plan but OFF-cold tells the time of the drafter, or of a look-up,
from the rest of a step. A trial of n = `STEPS` steps has the worth of `policies.trial`, in steps
of the plan,

    H sigma u(gap / sigma) - n lost - stake,    stake = L / 2 T (1 - B / tokens),

and costs the requests alive their drafts: they emit B tokens a step where the plan emits more, for
half of the mean lifetime L (seconds). The drafter stops if the plan that the trial interrupted was
no better than what it has timed. Otherwise its losses are no reason to stop it until half of the
requests have a drafter again. A look-up has no state to lose: its trial has no stake, and its
losses alone are a reason to stop it.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_features import SHARE
from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.policies.trial import EVERY as TRIAL_EVERY
from adaptive_spec.policies.trial import FIRST_HORIZON, MOST_HORIZON, unit_loss
from adaptive_spec.step import Capability, Mode, StepContext

EVERY = 4 * TRIAL_EVERY
"""Steps between two looks."""
STEPS = 8
"""Steps without the drafter in a trial; the first alone has cost the requests their drafts."""
REPLACED = 0.5
"""Share of the requests that have a drafter again when its losses count as ever."""


class ColdTrial:
    """Steps without the drafter that are run for what they tell."""

    def __init__(self, times: StepTimes) -> None:
        self._times = times
        self._left = 0
        self._timed: set[int] = set()
        """Loads at which steps without the drafter were timed, within factors of two."""
        self.recovering = False
        """Most requests have lost their drafter to a trial."""
        self._paid: float | None = None
        """Tokens per second of a request by the interrupted plan, until the trial is judged."""

    @staticmethod
    def needed(capability: Capability) -> bool:
        """Return whether nothing else tells the time of the drafter's passes."""
        leaves_out = capability.cold_off and not capability.steers_depth
        return leaves_out and 0 in capability.uniform_values

    def due(self, forecast: StepForecast, seen: int, lifetime: float) -> bool:
        """Return whether this step runs without the drafter; asked in each step that speculates.

        Args:
            forecast: of the step.
            seen: steps planned so far.
            lifetime: mean seconds that a request decodes.
        """
        context = forecast.context
        self._recover(context)
        if self._left:
            self._left -= 1
            return True
        if context.step % EVERY or self.recovering or not self._times.scale:
            return False
        if self.worth(forecast, seen, lifetime) <= 0.0:
            return False
        self._left, self.recovering = STEPS - 1, True
        if context.capability.off_pass:
            self._paid = forecast.counted(forecast.best_tokens) / context.batch_size
            self._paid /= forecast.best.seconds
        return True

    def stops(self, forecast: StepForecast) -> bool:
        """Return whether a trial that has ended says that the drafter should stop; once."""
        paid = self._paid
        if paid is None or self._left:
            return False
        self._paid = None
        self.recovering = paid * forecast.seconds_of(0, 0, Mode.OFF_COLD) > 1.0
        return not self.recovering

    def worth(self, forecast: StepForecast, seen: int, lifetime: float) -> float:
        """Return what a trial is worth beyond its cost (steps of the plan)."""
        context, best, times = forecast.context, forecast.best, self._times
        batch = context.batch_size
        tokens = forecast.counted(forecast.best_tokens)
        tokens_run = times.tokens(batch, np.array([int(best.verify.sum()), 0]))
        total = int(context.context_tokens.sum())
        passes = np.array([float(times.passes[-1]), 0.0])
        x = times.rows(batch, tokens_run, total, passes)
        seconds = np.maximum(x @ times.coefficients, 1e-3)
        gap = float(np.log(tokens / seconds[0]) - np.log(batch / seconds[1]))
        if gap <= 0.0:
            return 0.0  # the switch takes care of it
        apart = x[1] / seconds[1] - x[0] / seconds[0]
        error = self._times.noise * float(seconds[1]) ** 2 / STEPS
        told = float(apart @ times.covariance @ x[1]) ** 2
        told /= float(x[1] @ times.covariance @ x[1]) + error
        if batch.bit_length() not in self._timed:
            told += SHARE**4 / (SHARE**2 + error / float(seconds[1]) ** 2)
        sigma = max(told, 1e-16) ** 0.5
        horizon = min(FIRST_HORIZON + seen, MOST_HORIZON)
        worth = horizon * sigma * unit_loss(gap / sigma)
        lived = lifetime if context.capability.off_pass else 0.0
        stake = 0.5 * lived / best.seconds * (1.0 - batch / tokens)
        lost = STEPS * (1.0 - float(np.exp(-gap)))
        return float(worth - lost - stake)

    def timed(self, batch: int) -> None:
        """Count this load as one at which a step without the drafter was timed."""
        self._timed.add(batch.bit_length())

    def _recover(self, context: StepContext) -> None:
        if self.recovering and not self._left:
            out = 0 if context.opted_out is None else int(context.opted_out.sum())
            drafted = int((context.draft_possible > 0).sum())
            self.recovering = drafted < REPLACED * (context.batch_size - out)
