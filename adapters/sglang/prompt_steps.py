"""Time of the batches of prompts between decode steps, as far as it depends on K.

SGLang runs prompts in steps of their own. A batch of n prompts with t tokens takes a + b t seconds.
The more tokens a decode step emits, the more requests end in it, and the more prompts share the
next batch. With p(n) requests that follow a step, n in the mean and as by chance (Poisson), a step
that emits x tokens costs T + a (1 - exp(-n)) + b t, where n and t grow with x. Tokens per second
are highest where

    x dT/dx = T + a P(two prompts or more)

because b t, and a for single prompts, are the same for each token whatever K is. So each decode
step counts a P(n >= 2) seconds more than it took.
"""

from __future__ import annotations

import math
from collections import deque

from adaptive_spec.engines.step_clock import StepClock

_KEPT = 0.98
"""Share of the past that a step leaves: some 50 steps count."""


class PromptSteps:
    """Fixed time of a batch of prompts, and how many prompts share one.

    Args:
        clock: of the steps; batches of prompts end on it, too.
    """

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock
        self._not_before = deque[float](maxlen=4)
        self._sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)
        """Of batches: number, tokens, seconds, tokens squared, tokens times seconds."""
        self._joined = 0
        self._shared = 0.0

    def launched(self, now: float, *, under_way: int) -> None:
        """Note a batch of prompts that is about to run, with so many decode steps under way."""
        self._not_before.append(self._clock.launched(now, under_way=under_way))

    def ran(self, now: float, prompts: int, tokens: int) -> None:
        """Take up a batch of prompts whose results have arrived."""
        not_before = self._not_before.popleft() if self._not_before else math.inf
        seconds = self._clock.other_work_ended(now, not_before)
        self._joined += prompts
        if 0.0 < seconds < math.inf:
            new = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
            self._sums = tuple(_KEPT * a + b for a, b in zip(self._sums, new, strict=True))

    def decoded(self) -> float:
        """Take up a decode step; return the seconds that it counts more than it took."""
        self._shared = _KEPT * self._shared + (1.0 - _KEPT) * (self._joined > 1)
        self._joined = 0
        return self._shared * self.fixed_seconds

    @property
    def fixed_seconds(self) -> float:
        """Seconds of a batch of prompts without tokens, by least squares; 0 where unknown."""
        count, tokens, seconds, squares, products = self._sums
        variance = count * squares - tokens * tokens
        if count < 4.0 or variance <= 0.05 * tokens * tokens / count:
            return 0.0
        slope = max((count * products - tokens * seconds) / variance, 0.0)
        return min(max((seconds - slope * tokens) / count, 0.0), seconds / count)
