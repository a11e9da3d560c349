"""Comparison of predicted and measured goodput over recent steps.

A policy may predict the tokens and the duration of a step. Both sides sum the same steps: predicted
steps with a measured duration and without prompts, whose time is the least predictable. Diverging
sums mean that the policy decides by a wrong model of the engine.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.step import SpecPlan, StepOutcome

_MEMORY_STEPS = 1000.0
"""Time constant of the exponential averages (steps)."""


class PredictionCheck:
    """Exponentially weighted sums of predictions and measurements."""

    def __init__(self) -> None:
        self._predicted_tokens = self._predicted_seconds = 0.0
        self._tokens = self._seconds = 0.0

    def finished(self, plan: SpecPlan, outcome: StepOutcome) -> None:
        """Add a step: the plan that ran and its outcome."""
        tokens, seconds = plan.predicted_tokens, plan.predicted_seconds
        if not (0.0 < tokens < math.inf and 0.0 < seconds < math.inf):
            return
        complete = len(outcome.slots) == outcome.batch_size
        if not complete or outcome.prefill_tokens or not 0.0 < outcome.seconds < math.inf:
            return
        keep = 1.0 - 1.0 / _MEMORY_STEPS
        self._predicted_tokens = keep * self._predicted_tokens + tokens
        self._predicted_seconds = keep * self._predicted_seconds + seconds
        self._tokens = keep * self._tokens + float(np.add.reduce(outcome.emitted))
        self._seconds = keep * self._seconds + outcome.seconds

    def snapshot(self) -> dict[str, float]:
        """Return tokens per second, `predicted` and `measured`; empty without data."""
        if not self._seconds:
            return {}
        return {
            "predicted": self._predicted_tokens / self._predicted_seconds,
            "measured": self._tokens / self._seconds,
        }
