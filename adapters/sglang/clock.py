"""How long a decode step took.

SGLang runs prompts and decoding in batches of their own, and with overlap scheduling a batch is
launched before the results of the one before are read. So what a step really costs is the time from
the completion of the batch before it, prompts included, to its own, as long as there was work all
the time; after a pause it is the time since its own launch.
"""

from __future__ import annotations

import math

MAX_GAP_SECONDS = 0.02
"""Between a completion and the next launch; a longer gap means that the engine stood idle."""


class StepClock:
    """Turns times of launch and completion into durations. All times in seconds."""

    def __init__(self) -> None:
        self._completed = -math.inf

    def launched(self, now: float, *, in_flight: int) -> float:
        """A step begins at `now`; returns the earliest time its work is counted from.

        Args:
            now: monotonic clock.
            in_flight: steps launched before it whose results are not there yet.
        """
        idle = in_flight == 0 and now - self._completed > MAX_GAP_SECONDS
        return now if idle else -math.inf

    def completed(self, not_before: float, now: float) -> float:
        """Results of the oldest step are there; its duration, nan if it isn't clean.

        Args:
            not_before: what `launched` returned for it.
            now: time of completion.
        """
        began = max(not_before, self._completed)
        self._completed = now
        seconds = now - began
        return seconds if 0 < seconds < math.inf else math.nan

    def other_work_ended(self, now: float) -> None:
        """A batch that is no decode step, such as prompts, has ended."""
        self._completed = now
