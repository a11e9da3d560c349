"""Durations of engine steps.

Steps overlap where an engine schedules ahead, so the time from a step's launch to its results
includes part of the step before. The cost of a step is the time from the previous completion to its
own while the engine has work; after a pause, the time since its launch.
"""

from __future__ import annotations

import math

MAX_GAP_SECONDS = 0.02
"""Longest time from a completion to the next launch of a busy engine (seconds)."""


class StepClock:
    """Converts launch and completion times into step durations. All times in seconds.

    The caller counts the steps under way (`PendingSteps`); the clock does not.
    """

    def __init__(self) -> None:
        self._completed = -math.inf
        self._not_clean = 0

    def launched(self, now: float, *, under_way: int) -> float:
        """Return the earliest time that the work of a step launched at `now` is counted from.

        Args:
            now: monotonic clock.
            under_way: steps launched before this one whose results have not arrived.
        """
        idle = under_way == 0 and now - self._completed > MAX_GAP_SECONDS
        return now if idle else -math.inf

    def completed(self, not_before: float, now: float) -> float:
        """Return the duration of the step whose results arrived at `now`.

        nan without a clean measurement.

        Args:
            not_before: the value that `launched` returned for the step.
            now: time of completion.
        """
        began = max(not_before, self._completed)
        self._completed = now
        if self._not_clean:
            self._not_clean -= 1
            return math.nan
        seconds = now - began
        return seconds if 0 < seconds < math.inf else math.nan

    def other_work_ended(self, now: float, not_before: float = -math.inf) -> float:
        """Record the completion of an untracked batch, such as a batch of prompts.

        Returns its duration; inf where the time of the completion before is unknown.
        """
        began, self._completed = max(not_before, self._completed), now
        return now - began

    def interrupted(self, *, under_way: int) -> None:
        """Discard the samples of the steps under way and of the next: the engine was paused."""
        self._not_clean = under_way + 1

    def reset(self) -> None:
        """Start anew: the results of the steps under way will not arrive."""
        self._completed = -math.inf
