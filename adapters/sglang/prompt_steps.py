"""Time of the batches of prompts between decode steps, as far as it depends on K.

SGLang runs prompts in steps of their own. A batch of n prompts with t tokens takes a + b t seconds.
The more tokens a decode step emits, the more requests end in it, and the more prompts share the
batch that follows. With n requests that follow a step, Poisson with mean l, a step that takes T
seconds and emits x tokens costs T + a (1 - exp(-l)) + b t in all, and both l and t grow with x.
Along the tangent at the present l, the time of prompts is a constant for each token, which favours
no K, and for each step the seconds

    a (1 - (1 + l) exp(-l)),

a times the probability of two prompts or more. So tokens per second are highest where x over T plus
these seconds is (`StepContext.shared_seconds`).
"""

from __future__ import annotations

import math
from collections import deque

from adaptive_spec.engines.driver import StepClock
from adaptive_spec.prompt_batches import PromptBatches

_KEPT = 0.98
"""Share of the past that a step leaves: some 50 steps count."""
_MOST_UNTOLD = 64
"""Batches that are kept for the record of the next decode step."""


class PromptSteps:
    """Fixed time of a batch of prompts, and the number of prompts that follow a decode step.

    Args:
        clock: of the steps; batches of prompts end on it, too.
    """

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock
        self._not_before = deque[float](maxlen=4)
        self._batches = PromptBatches()
        self._prompts = self._steps = 0.0
        self._untold = deque[tuple[int, int, float]](maxlen=_MOST_UNTOLD)

    def launched(self, now: float, *, under_way: int) -> None:
        """Note a batch of prompts that is about to run, with so many decode steps under way."""
        self._not_before.append(self._clock.launched(now, under_way=under_way))

    def record(self, now: float, prompts: int, tokens: int) -> None:
        """Count a batch of prompts whose results have arrived."""
        not_before = self._not_before.popleft() if self._not_before else math.inf
        seconds = self._clock.other_work_ended(now, not_before)
        self._prompts += prompts
        if 0.0 < seconds < math.inf:
            self._batches.fade(_KEPT)
            self._batches.add(tokens, seconds)
            self._untold.append((prompts, tokens, seconds))

    def take_batches(self) -> tuple[tuple[int, int, float], ...]:
        """Return requests, tokens and seconds of each batch since the last call."""
        found = tuple(self._untold)
        self._untold.clear()
        return found

    def decoded(self) -> None:
        """Count a decode step."""
        self._prompts *= _KEPT
        self._steps = _KEPT * self._steps + 1.0

    @property
    def shared_seconds(self) -> float:
        """Seconds that a decode step costs besides its own, whatever its K."""
        if not self._steps:
            return 0.0
        each = self._prompts / self._steps
        return self._batches.fixed_seconds * (1.0 - (1.0 + each) * math.exp(-each))
