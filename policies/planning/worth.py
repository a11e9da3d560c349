"""Estimated throughput of what a policy does not run: no speculation, and the engine's own K.

Every eighth planned step adds the expected tokens and seconds of three plans of that step; the time
of prompts in the step counts for all of them alike.
"""

from __future__ import annotations

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

    def planned(self, forecast: StepForecast, mode: Mode) -> None:
        """Add a step that runs in this mode, if its turn has come."""
        self._steps += 1
        if self._steps % _EVERY_STEPS:
            return
        context = forecast.context
        own = np.minimum(context.draft_possible, context.engine_k)
        emitted, took = forecast.best_tokens, forecast.best.seconds
        if mode is not Mode.ON:  # unlike the best plan, OFF-cold has no pass of the drafter
            emitted, took = context.batch_size, forecast.seconds_of(0, 0, mode)
        tokens = (context.batch_size, forecast.tokens_of(own), emitted)
        without = float(forecast.verify_seconds[0])
        engine = forecast.seconds_of(int(own.sum()), context.engine_k)
        seconds = np.array((without, engine, took)) + forecast.prefill_seconds
        self._sums = _KEEP * self._sums + np.array((tokens, seconds))

    def snapshot(self) -> dict[str, float]:
        """Return tokens per second of each plan; empty without data."""
        tokens, seconds = self._sums.tolist()
        if not all(seconds):
            return {}
        return {name: a / b for name, a, b in zip(_NAMES, tokens, seconds, strict=True)}
