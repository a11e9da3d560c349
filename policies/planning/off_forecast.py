"""No speculation at the load of a step, beside what drafts would bring: what the switch reads."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.switch.break_even import Prospect, prospect
from adaptive_spec.step import FloatArray, IntArray, Mode


class OffForecast(NamedTuple):
    """A step without speculation, and speculation compared with it; computed when read."""

    step: StepForecast

    @property
    def off_seconds(self) -> float:
        """Duration, without prompts, of a step at the cheapest K = 0 of this engine."""
        cold = self.step.context.capability.cold_off
        return self.step.seconds_of(0, 0, Mode.OFF_COLD if cold else Mode.OFF_WARM)

    @property
    def warm_seconds(self) -> float:
        """Seconds added by the pass that keeps the drafter's state current."""
        return self.step.seconds_of(0, 0, Mode.OFF_WARM) - self.off_seconds

    @property
    def advantage(self) -> float:
        """Goodput of the best plan over that of the cheapest K = 0, minus 1."""
        off = self.step.context.batch_size / self.off_seconds
        return self.step.counted(self.step.best_tokens) / self.step.best.seconds / off - 1.0

    def prospect(self) -> Prospect:
        """Gain and break-even of speculation at this load, were first drafts accepted often."""
        number = self.step.taking_part
        mean = self.step.counted_survival.mean(axis=1)
        draft_seconds = self.step.draft_seconds
        if not self.step.context.capability.steers_depth:
            draft_seconds = np.full_like(draft_seconds, draft_seconds[-1])
        return prospect(
            number,
            self.step.verify_seconds[: number * len(mean) + 1],
            draft_seconds,
            self.off_seconds,
            mean[1:] / mean[:-1],
        )

    def best_uniform(self) -> tuple[int, float]:
        """Return the best K >= 1 for all requests, and its goodput over that of no speculation."""
        number, most = self.step.taking_part, len(self.step.verify_seconds) - 1
        tokens = 1.0 + np.cumsum(self.step.counted_survival.mean(axis=1))
        pace = {
            k: float(tokens[k - 1]) / self.step.seconds_of(min(k * number, most), k)
            for k in self.step.context.capability.uniform_values
            if k
        }
        best = max(pace, key=lambda k: pace[k])
        return best, pace[best] * self.off_seconds

    def log_gain_of_none(self) -> tuple[float, float]:
        """Return ln goodput of no speculation over that of the best K >= 1, and its standard error.

        The error is that of the step times.
        """
        context, capability = self.step.context, self.step.context.capability
        k, of_none = self.best_uniform()
        seconds, errors, _ = self.step.step_times.goodput_covariance(
            context.batch_size,
            int(context.context_tokens.sum()),
            [0, k * self.step.taking_part],
            [
                -1 if capability.cold_off else 0,
                k if capability.steers_depth else capability.max_draft_tokens,
            ],
        )
        part = seconds / (seconds + context.shared_seconds)
        none, best = part * np.sqrt(np.diag(errors))
        variance = none * none + best * best - 2.0 * part[0] * part[1] * errors[0, 1]
        return -math.log(of_none), math.sqrt(max(float(variance), 0.0))

    @property
    def timed_drafts(self) -> int:
        """Steps with drafts that were timed at this load."""
        return self.step.step_times.timed_drafts(self.step.context.batch_size)

    @property
    def drafted_slots(self) -> IntArray:
        """Slots of the requests that may verify drafts."""
        slots: IntArray = self.step.context.slots[self.step.context.draft_possible > 0]
        return slots

    def saved_seconds(self, batch_sizes: list[int]) -> FloatArray:
        """Seconds that the best K >= 1 saves of a step without drafts, per token of a request.

        Args:
            batch_sizes: [N] of requests such as those of this step.

        Returns [N], at least 0.
        """
        each = int(self.step.context.context_tokens.mean())
        tokens = 1.0 + np.cumsum(self.step.counted_survival.mean(axis=1))
        k = np.arange(1, len(tokens) + 1)
        saved = np.zeros(len(batch_sizes))
        for n, batch in enumerate(batch_sizes):
            verify = self.step.step_times.verify_seconds(batch, batch * each, 0)
            drafting = self.step.step_times.draft_seconds(batch)
            passes = drafting[k] if self.step.context.capability.steers_depth else drafting[-1]
            saved[n] = verify[0] - np.min((verify[batch * k] + passes) / tokens)
        return np.maximum(saved, 0.0)
