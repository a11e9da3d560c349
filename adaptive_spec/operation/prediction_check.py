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
_MOST_UNDER_WAY = 64


class PredictionCheck:
    """Sums of what was predicted and of what was measured, the last steps counting most."""

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[float, float]] = {}
        self._predicted_tokens = self._predicted_seconds = 0.0
        self._tokens = self._seconds = 0.0

    def plan(self, plan: SpecPlan) -> None:
        """A step is planned."""
        tokens, seconds = plan.predicted_tokens, plan.predicted_seconds
        if not (0.0 < tokens < math.inf and 0.0 < seconds < math.inf):
            return
        under_way = self._under_way
        under_way[plan.step] = (tokens, seconds)
        if len(under_way) > _MOST_UNDER_WAY:  # steps that ran nothing have no outcome
            del under_way[next(iter(under_way))]

    def outcome(self, outcome: StepOutcome) -> None:
        """A step has ended."""
        predicted = self._under_way.pop(outcome.step, None)
        complete = len(outcome.slots) == outcome.batch_size
        if predicted is None or not complete or outcome.prefill_tokens:
            return
        if not 0.0 < outcome.seconds < math.inf:
            return
        keep = 1.0 - 1.0 / _MEMORY_STEPS
        self._predicted_tokens = keep * self._predicted_tokens + predicted[0]
        self._predicted_seconds = keep * self._predicted_seconds + predicted[1]
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
