"""Numbers behind the present decision of a planned policy, for `adaptive_spec.operation.why`.

`Worth` estimates the throughput of what does not run: no speculation, and the engine's own K. Every
eighth planned step adds the expected tokens and seconds of three plans of that step; the time
of prompts in the step counts for all of them alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.step import FloatArray, Mode

_EVERY_STEPS = 8
_KEEP = 1.0 - _EVERY_STEPS / 200.0
"""Factor of the exponential averages, whose time constant is 200 steps."""
_NAMES = ("no_speculation", "engine_k", "planned")


class Worth:
    """Exponentially weighted tokens and seconds of each plan."""

    def __init__(self) -> None:
        self._steps = 0
        self._sums: FloatArray = np.zeros((2, len(_NAMES)))

    def planned(self, forecast: StepForecast) -> None:
        """Add a step, if its turn has come."""
        self._steps += 1
        if self._steps % _EVERY_STEPS:
            return
        context = forecast.context
        own = np.minimum(context.draft_possible, context.engine_k)
        tokens = (context.batch_size, forecast.tokens_of(own), forecast.best_tokens)
        without = float(forecast.verify_seconds[0])
        engine = forecast.seconds_of(int(own.sum()), context.engine_k)
        seconds = np.array((without, engine, forecast.best.seconds)) + forecast.prefill_seconds
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
        ``accepted``: probability that draft 1, 2, ... is accepted once those before it were, mean
        over the requests, as far as the plan verifies. ``step_ms``, ``tokens``: duration and
        emitted tokens of the best plan. ``of_none``: its goodput over that of no speculation.
        ``next``: position, acceptance, cost (ms per step) and tokens (per step) of one draft more
        for every request; absent at the largest K. ``untimed_k``: `uncertain`.
    """
    best, batch = forecast.best, forecast.context.batch_size
    mean = forecast.survival.mean(axis=1)
    hazard = mean / np.maximum(np.concatenate((np.ones(1), mean[:-1])), 1e-12)
    k = round(float(best.verify.mean()))
    numbers: dict[str, Any] = {
        "batch": batch,
        "k": round(float(best.verify.mean()), 2),
        "most_k": int(best.verify.max(initial=0)),
        "accepted": [round(float(each), 3) for each in hazard[:k]],
        "step_ms": round(1e3 * best.seconds, 3),
        "tokens": round(forecast.best_tokens, 2),
        "of_none": round(1.0 + forecast.advantage, 3),
        "untimed_k": uncertain,
    }
    if k < len(mean):
        numbers["next"] = {
            "position": k + 1,
            "accepted": round(float(hazard[k]), 3),
            "ms": round(1e3 * (_seconds(forecast, k + 1) - _seconds(forecast, k)), 3),
            "tokens": round(float(batch * mean[k]), 2),
        }
    return numbers


def best_uniform(forecast: StepForecast) -> dict[str, Any]:
    """Return the best K >= 1 for all requests, and its goodput over that of no speculation."""
    batch, survival = forecast.taking_part, forecast.counted_survival
    off = batch / forecast.off_seconds
    gains = [
        (batch + batch * float(survival[:k].mean(axis=1).sum())) / _seconds(forecast, k) / off
        for k in range(1, len(forecast.survival) + 1)
    ]
    best = int(np.argmax(gains))
    return {"k": best + 1, "of_none": round(gains[best], 3)}


def _seconds(forecast: StepForecast, k: int) -> float:
    """Duration of a step that verifies K drafts of each request and drafts as deep."""
    drafts = min(k * forecast.taking_part, len(forecast.verify_seconds) - 1)
    return forecast.seconds_of(drafts, k, Mode.ON if k else Mode.OFF_WARM)
