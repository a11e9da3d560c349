"""Numbers behind the present decision of a planned policy, for `adaptive_spec.operation.why`.

`Worth` estimates the throughput of what does not run: no speculation, and the engine's own K. Every
eighth planned step adds the expected tokens and seconds of three plans of that step; the time
of prompts in the step counts for all of them alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.policies.planning.planner import is_ragged
from adaptive_spec.policies.planning.step_forecast import OffForecast, StepForecast
from adaptive_spec.step import FloatArray, IntArray, Level, Mode

EVERY_STEPS = 8
_KEEP = 1.0 - EVERY_STEPS / 200.0
"""Factor of the exponential averages, whose time constant is 200 steps."""
_NAMES = ("no_speculation", "engine_k", "planned")


class Worth:
    """Exponentially weighted tokens and seconds of each plan."""

    def __init__(self) -> None:
        self._sums: FloatArray = np.zeros((2, len(_NAMES)))

    def planned(self, forecast: StepForecast, mode: Mode, depth: int, found: float) -> None:
        """Add a step that runs in this mode.

        Args:
            forecast: of the step.
            mode: in which it runs.
            depth: to which the drafts at hand were asked for; 0: none were.
            found: share of the requests for which the drafter finds drafts when asked; 1 for a
                drafter with a state.
        """
        context = forecast.context
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

    def snapshot(self) -> dict[str, float]:
        """Return tokens per second of each plan; empty without data."""
        tokens, seconds = self._sums.tolist()
        if not all(seconds):
            return {}
        return {name: a / b for name, a, b in zip(_NAMES, tokens, seconds, strict=True)}


def explanation(forecast: StepForecast, uncertain: list[int]) -> dict[str, Any]:
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
        "of_none": round(1.0 + OffForecast(forecast).advantage, 3),
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
