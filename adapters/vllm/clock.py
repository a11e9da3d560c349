"""How long a step took.

With async scheduling, steps overlap: the time from `schedule` to `update_from_output` counts
part of the step before. What a step really costs is the time from one completion to the next, as
long as the engine had work all the time; after a pause it is the time since its own scheduling.
"""

from __future__ import annotations

import math

MAX_GAP_SECONDS = 0.02
"""Between a completion and the next scheduling; a longer gap means that the engine stood idle."""


class StepClock:
    """Turns times of scheduling and completion into step durations. All times in seconds."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._completed = -math.inf
        self._not_clean = 0

    def scheduled(self, now: float) -> float:
        """A step is scheduled at `now`; returns the earliest time its work can be counted from."""
        idle = self._in_flight == 0 and now - self._completed > MAX_GAP_SECONDS
        self._in_flight += 1
        return now if idle else -math.inf

    def completed(self, not_before: float, now: float) -> float:
        """Results of the oldest step arrived at `now`; its duration, nan if it isn't clean.

        Args:
            not_before: what `scheduled` returned for that step.
            now: time of completion.
        """
        began = max(not_before, self._completed)
        self._in_flight -= 1
        self._completed = now
        if self._not_clean:
            self._not_clean -= 1
            return math.nan
        seconds = now - began
        return seconds if 0 < seconds < math.inf else math.nan

    def interrupted(self) -> None:
        """The steps under way and the one after them give no sample."""
        self._not_clean = self._in_flight + 1

    def withdrawn(self) -> None:
        """A scheduled step turned out to run nothing."""
        self._in_flight -= 1

    def reset(self) -> None:
        """Steps were lost; start anew."""
        self._in_flight = 0
        self._completed = -math.inf
