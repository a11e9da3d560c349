"""Figures about decisions, for people: what `explain`, `why`, `top`, metrics and view show.

They come from the forecasts of the steps and decide nothing.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.policies.hazard_quality import HazardQuality
from adaptive_spec.policies.optional.break_even import BreakEvenTable
from adaptive_spec.policies.planning.planner import is_ragged
from adaptive_spec.policies.planning.step_forecast import StepForecast, verify_price
from adaptive_spec.policies.step_features import SHARE
from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.policies.switch import Switch
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, Mode, SpecPlan

FULL_PRICE = 0.35
"""Tokens that a draft must bring from which on a batch is called full: a request has one or two."""
LEARNING_STEPS = 100
"""Steps timed at a load, within factors of two, before it is called known."""
EVERY_STEPS = 16
"""Steps of which one is added to the figures."""
_KEEP = 1.0 - EVERY_STEPS / 200.0
"""Factor of the exponential averages, whose time constant is 200 steps."""
_NAMES = ("no_speculation", "engine_k", "planned")


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
        self._sums: FloatArray = np.zeros((2, len(_NAMES)))
        """Expected tokens and seconds of no speculation, the engine's own K, and the plan."""
        self.forecast: StepForecast | None = None
        self.quality = HazardQuality(capability.max_draft_tokens)
        self.table = BreakEvenTable(capability, times)
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
            self._compare(forecast, plan.mode, asked)

    def _compare(self, forecast: StepForecast, mode: Mode, depth: int) -> None:
        """Add a step that runs in this mode; the time of its prompts counts for all plans alike.

        Args:
            forecast: of the step.
            mode: in which it runs.
            depth: to which the drafts at hand were asked for; 0: none were.
        """
        context, found = forecast.context, self.table.found
        own = np.minimum(context.draft_possible, context.engine_k)
        if found < 1.0 and depth:
            # Drafts that a look-up did not find at this depth it would not have found at the own K.
            all_found = context.draft_available >= depth
            own = np.where(all_found, own, np.minimum(own, context.draft_available))
            found = 1.0
        emitted, took = forecast.best_tokens, forecast.best.seconds
        if mode is not Mode.ON:  # unlike the best plan, OFF-cold has no pass of the drafter
            emitted, took = context.batch_size, forecast.seconds_of(0, 0, mode)
        by_own = context.batch_size + found * (forecast.tokens_of(own) - context.batch_size)
        tokens = (context.batch_size, by_own, emitted)
        without = float(forecast.verify_seconds[0])
        engine = forecast.seconds_of(round(found * own.sum()), context.engine_k)
        seconds = np.array((without, engine, took)) + forecast.prefill_seconds
        self._sums = _KEEP * self._sums + np.array((tokens, seconds))

    def situation(self, forecast: StepForecast) -> Situation:
        """Return the state that the controller is in."""
        if self._mode is not Mode.ON:
            return Situation.OFF_WAITING
        if self._times.jumped:
            return Situation.CHANGED
        if self._times.timed(forecast.context.batch_size) < LEARNING_STEPS:
            return Situation.LEARNING
        full = verify_price(forecast) >= FULL_PRICE
        return Situation.FULL_BATCH if full else Situation.STEADY

    def estimates(self) -> dict[str, float]:
        """Return tokens per second of no speculation, the engine's own K and the plan, if known."""
        tokens, seconds = self._sums.tolist()
        if not all(seconds):
            return {}
        return {name: a / b for name, a, b in zip(_NAMES, tokens, seconds, strict=True)}

    def break_even(self) -> dict[str, Any]:
        """Return where drafts break even, as `BreakEven` in JSON; empty before the first step."""
        return dict(msgspec.to_builtins(self.table.snapshot() or {}, str_keys=True))

    def explanation(self) -> dict[str, Any]:
        """Return the numbers behind the last decision; empty before the first forecast.

        They are those of `of_best_plan`, and ``situation``; ``switch``: seconds
        that the drafter has ``lost`` and may lose (``stake``), its ``credit``, and what has
        ``kept`` it where no draft pays. While nothing is drafted, also ``off_seconds`` and
        ``best``; ``back_seconds``, to the drafter's return, where its pass is left out.
        """
        forecast, switch = self.forecast, self._switch
        if forecast is None:
            return {}
        numbers = of_best_plan(forecast, self._untimed(forecast))
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
            k, of_none = forecast.best_uniform()
            numbers["best"] = {"k": k, "of_none": round(of_none, 3)}
            numbers["off_seconds"] = round(max(now - self._off_since, 0.0), 1)
            if switch.cold:
                numbers["back_seconds"] = round(switch.until - now, 1)
        return numbers

    def _untimed(self, forecast: StepForecast) -> list[int]:
        """Return K that were not timed at this load and may be better than the plan, for all known.

        The gap of ln goodput is below `SHARE`, by which an untimed K may be off.
        """
        untimed, best = self._times.untimed(forecast.context.batch_size), forecast.best
        pace = forecast.counted(forecast.best_tokens) / best.seconds / forecast.context.batch_size
        near = math.exp(-SHARE) * pace
        return [k for k, each in forecast.paces().items() if untimed[k] and each > near]


def of_best_plan(forecast: StepForecast, uncertain: list[int]) -> dict[str, Any]:
    """Return the numbers of a step's best plan and of one draft more, JSON-compatible.

    Args:
        forecast: of the step.
        uncertain: K of whose step time little is known.

    Returns:
        ``batch``: requests of the step. ``k``, ``most_k``: mean and largest K of the best plan.
        ``accepted``: probability that draft 1, 2, ... is accepted, mean over the requests, as far
        as the plan verifies. ``step_ms``, ``tokens``: duration and emitted tokens of the best plan.
        ``of_none``: its goodput over that of no speculation. ``next``: one draft more for every
        request that can have one (the next K of the ladder at level UNIFORM): position (None where
        the K differ), mean acceptance, cost (ms per step) and tokens (per step). Without ``next``,
        ``limit`` says why: ``kmax``, ``possible`` (hints, lengths and grammar allow no more), or
        ``drafted`` (the drafter made no more for this step). ``untimed_k``: `uncertain`.
    """
    best, context = forecast.best, forecast.context
    mean = forecast.survival.mean(axis=1)
    most = int(best.verify.max(initial=0))
    numbers: dict[str, Any] = {
        "batch": context.batch_size,
        "k": round(float(best.verify.mean()), 2),
        "most_k": most,
        "accepted": [round(float(each), 3) for each in mean[:most]],
        "step_ms": round(1e3 * best.seconds, 3),
        "tokens": round(forecast.best_tokens, 2),
        "of_none": round(forecast.of_none, 3),
        "untimed_k": uncertain,
    }
    more = _one_more(forecast)
    extra = more - best.verify
    if not extra.any():
        kmax = context.capability.uniform_values[-1]
        numbers["limit"] = "kmax" if (best.verify >= kmax).all() else "possible"
        return numbers
    tokens = forecast.tokens_of(more) - forecast.tokens_of(best.verify)
    depth = max(best.draft_depth, int(more.max()))
    seconds = forecast.seconds_of(int(more.sum()), depth, ragged=is_ragged(more)) - best.seconds
    # A draft that would pay and is not verified is one that the drafter has not made.
    pays = seconds * forecast.best_tokens < tokens * best.seconds
    if pays and (more > context.draft_available).any():
        numbers["limit"] = "drafted"
        return numbers
    numbers["next"] = {
        "position": int(more.max()) if not is_ragged(best.verify) else None,
        "accepted": round(tokens / int(extra.sum()), 3),
        "ms": round(1e3 * seconds, 3),
        "tokens": round(tokens, 2),
    }
    return numbers


def _one_more(forecast: StepForecast) -> IntArray:
    """K_i [B] with one draft more for each request that may have one."""
    context, verify = forecast.context, forecast.best.verify
    k = verify + 1
    if context.capability.level is Level.UNIFORM:
        most = int(verify.max(initial=0))
        k = np.full_like(
            verify, min((k for k in context.capability.uniform_values if k > most), default=most)
        )
    more: IntArray = np.maximum(np.minimum(k, context.draft_possible), verify)
    return more
