"""Durations of engine steps.

Steps overlap where an engine schedules ahead, so the time from a step's launch to its results
counts part of the step before it. A step really costs the time from the previous completion to its
own, as long as the engine had work all the time; after a pause it costs the time since its launch.
"""

from __future__ import annotations

import math

MAX_GAP_SECONDS = 0.02
"""Longest time from a completion to the next launch of an engine that has work (seconds)."""


class StepClock:
    """Turns times of launch and completion into step durations. All times in seconds.

    The caller knows which steps are under way (`PendingSteps`); the clock keeps no count of them.
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
        """Return the duration of the step whose results arrived at `now`; nan if it isn't clean.

        Args:
            not_before: what `launched` returned for that step.
            now: time of completion.
        """
        began = max(not_before, self._completed)
        self._completed = now
        if self._not_clean:
            self._not_clean -= 1
            return math.nan
        seconds = now - began
        return seconds if 0 < seconds < math.inf else math.nan

    def other_work_ended(self, now: float) -> None:
        """A batch that is no followed step, such as one of prompts, completed at `now`."""
        self._completed = now

    def interrupted(self, *, under_way: int) -> None:
        """The steps under way and the one after them give no sample: the engine was paused."""
        self._not_clean = under_way + 1

    def reset(self) -> None:
        """The results of the steps under way will not come; the next step starts anew."""
        self._completed = -math.inf
