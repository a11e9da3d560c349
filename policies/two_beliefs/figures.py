"""Figures about decisions, for people: what `explain`, `why`, `top`, metrics and view show.

They come from the forecasts of the steps and decide nothing.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.policies.acceptance.hazard_quality import HazardQuality
from adaptive_spec.policies.planning.break_even_table import BreakEvenTable
from adaptive_spec.policies.planning.explanation import EVERY_STEPS, Worth, explanation
from adaptive_spec.policies.planning.step_forecast import OffForecast, StepForecast, verify_price
from adaptive_spec.policies.two_beliefs.optional.break_even import BelievedRatios
from adaptive_spec.policies.two_beliefs.step_times import SHARE, StepTimes
from adaptive_spec.policies.two_beliefs.switch import Switch
from adaptive_spec.step import Capability, Mode, SpecPlan

FULL_PRICE = 0.35
"""Tokens that a draft must bring from which on a batch is called full: a request has one or two."""
LEARNING_STEPS = 100
"""Steps timed at a load, within factors of two, before it is called known."""


class Situation(enum.StrEnum):
    """State that the controller is in; docs/how_it_decides.md says what people see in each."""

    LEARNING = "learning"
    """Few steps were timed at this load."""
    STEADY = "steady"
    FULL_BATCH = "full batch"
    """A token costs about as much as a draft brings."""
    OFF_WAITING = "off, waiting"
    """No K pays."""
    CHANGED = "changed"
    """All step times have jumped lately."""


class Figures:
    """Figures of one engine.

    Attributes:
        forecast: of the last step that was forecast; None before the first.
        quality: predicted acceptance against outcomes.
        table: loads seen and drafts accepted, for the break-even of drafts.
    """

    def __init__(self, capability: Capability, times: StepTimes, switch: Switch) -> None:
        self._times, self._switch = times, switch
        self._worth = Worth()
        self.forecast: StepForecast | None = None
        self.quality = HazardQuality(capability.max_draft_tokens)
        self.table = BreakEvenTable(capability, BelievedRatios(times))
        self._mode, self._off_since = Mode.ON, math.inf

    def planned(self, forecast: StepForecast, plan: SpecPlan, asked: int) -> None:
        """Keep a plan for the figures; step times must be known.

        Args:
            forecast: of the step.
            plan: of the step.
            asked: depth to which the drafts at hand were asked for.
        """
        self.forecast, self._mode = forecast, plan.mode
        if plan.mode is Mode.ON:
            self._off_since = math.inf
        elif self._off_since == math.inf:
            self._off_since = forecast.context.now
        if not forecast.context.step % EVERY_STEPS:
            self.table.planned(forecast)
            self._worth.planned(forecast, plan.mode, asked, self.table.found)

    def situation(self, forecast: StepForecast) -> Situation:
        """Return the state that the controller is in."""
        if self._mode is not Mode.ON:
            return Situation.OFF_WAITING
        if self._times.timed(forecast.context.batch_size) < LEARNING_STEPS:
            return Situation.LEARNING
        if self._times.jumped:
            return Situation.CHANGED
        full = verify_price(forecast) >= FULL_PRICE
        return Situation.FULL_BATCH if full else Situation.STEADY

    def estimates(self) -> dict[str, float]:
        """Return tokens per second of no speculation, the engine's own K and the plan."""
        return self._worth.snapshot()

    def break_even(self) -> dict[str, Any]:
        """Return where drafts break even, as `BreakEven` in JSON; empty before the first step."""
        return dict(msgspec.to_builtins(self.table.snapshot() or {}, str_keys=True))

    def explanation(self) -> dict[str, Any]:
        """Return the numbers behind the last decision; empty before the first forecast.

        They are those of `policies.planning.explanation`, and ``situation``; ``switch``: seconds
        that the drafter has ``lost`` and may lose (``stake``), its ``credit``, and what has
        ``kept`` it where no draft pays. While nothing is drafted, also ``off_seconds``, ``best``
        and ``probing``; ``next_probe_seconds`` where the drafter's pass is left out.
        """
        forecast, switch = self.forecast, self._switch
        if forecast is None:
            return {}
        numbers = explanation(forecast, self._untimed(forecast))
        numbers["situation"] = self.situation(forecast).value
        lost, kept = round(switch.lost, 4), ""
        if not switch.cold and numbers["of_none"] < 1.0:
            kept = "credit" if lost < 0.0 else "stake"
        numbers["switch"] = {
            "lost": lost,
            "credit": max(-lost, 0.0),
            "stake": round(switch.stake, 4),
            "kept": kept,
        }
        if self._mode is not Mode.ON:
            now = forecast.context.now
            k, of_none = OffForecast(forecast).best_uniform()
            numbers["best"] = {"k": k, "of_none": round(of_none, 3)}
            numbers["off_seconds"] = round(max(now - self._off_since, 0.0), 1)
            numbers["probing"] = False
            if switch.cold:
                numbers["next_probe_seconds"] = round(switch.until - now, 1)
        return numbers

    def _untimed(self, forecast: StepForecast) -> list[int]:
        """Return K that were not timed at this load and may be better than the plan, for all known.

        The gap of ln goodput is below `SHARE`, by which an untimed K may be off.
        """
        untimed = self._times.untimed(forecast.context.batch_size)
        number = forecast.taking_part
        tokens = np.append(1.0, 1.0 + np.cumsum(forecast.counted_survival.mean(axis=1)))
        best = forecast.counted(forecast.best_tokens) / forecast.best.seconds
        best /= forecast.context.batch_size
        most = len(forecast.verify_seconds) - 1
        return [
            k
            for k in forecast.context.capability.uniform_values
            if untimed[k]
            and tokens[k] / forecast.seconds_of(min(k * number, most), k) > math.exp(-SHARE) * best
        ]
