"""Predicted against measured goodput, over the steps of the last minutes.

A policy may say how many tokens a step will emit and how long it will take. Both sides are summed
over the same steps: those that were predicted, whose duration could be measured, and that ran no
prompts, whose time is the least predictable. A policy whose two goodputs drift apart decides by a
wrong picture of the engine.
"""

from __future__ import annotations

import math

from adaptive_spec.step import SpecPlan, StepOutcome

_MEMORY_STEPS = 1000.0
"""Older steps count less by 1/e per this many."""


class PredictionCheck:
    """Sums of what was predicted and of what was measured, the last steps counting most."""

    def __init__(self) -> None:
        self._predicted_tokens = self._predicted_seconds = 0.0
        self._tokens = self._seconds = 0.0

    def finished(self, plan: SpecPlan, outcome: StepOutcome) -> None:
        """Take up a step: the plan that ran, and what came of it."""
        tokens, seconds = plan.predicted_tokens, plan.predicted_seconds
        if not (0.0 < tokens < math.inf and 0.0 < seconds < math.inf):
            return
        complete = len(outcome.slots) == outcome.batch_size
        if not complete or outcome.prefill_tokens or not 0.0 < outcome.seconds < math.inf:
            return
        keep = 1.0 - 1.0 / _MEMORY_STEPS
        self._predicted_tokens = keep * self._predicted_tokens + tokens
        self._predicted_seconds = keep * self._predicted_seconds + seconds
        self._tokens = keep * self._tokens + float(outcome.emitted.sum())
        self._seconds = keep * self._seconds + outcome.seconds

    def snapshot(self) -> dict[str, float]:
        """Tokens per second, `predicted` and `measured`; empty before there is anything."""
        if not self._seconds:
            return {}
        return {
            "predicted": self._predicted_tokens / self._predicted_seconds,
            "measured": self._tokens / self._seconds,
        }
