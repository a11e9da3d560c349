"""How long the stages of the demo take, and how much time is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager


class Clock:
    """Times the stages of the run and says when each begins.

    Args:
        expected: seconds of each stage on two idle cores, in the order that they run.
        timed: stages that last as long on any machine.
        now: a monotonic clock, seconds.
    """

    def __init__(
        self,
        expected: Mapping[str, float],
        timed: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._expected = dict(expected)
        self._timed = timed
        self._now = now
        self._began = now()
        self._slowness = 1.0
        self._stage, self._stage_began = "", 0.0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """A stage; its time is kept under its name."""
        self._stage, self._stage_began = name, self._now()
        self.say(f"{text}; {self.left()} left")
        yield
        took = self.seconds_in_stage
        self.seconds[name] = round(took, 1)
        if name not in self._timed and name in self._expected:
            self._slowness = max(took / self._expected[name], 1.0)

    def say(self, text: str) -> None:
        """Print a line with the time since the beginning."""
        print(f"[{self.total:4.0f} s] {text}", flush=True)

    def left(self) -> str:
        """Time until the end; the machine stays as slow as it was in the last stage of work."""
        seconds = 0.0
        for name in self._expected.keys() - self.seconds.keys():
            expected = self._expected[name]
            if name not in self._timed:
                expected *= self._slowness
            if name == self._stage:
                expected = max(expected - self.seconds_in_stage, 0.0)
            seconds += expected
        return f"about {round(seconds / 60)} min" if seconds > 90 else f"about {seconds:.0f} s"

    @property
    def seconds_in_stage(self) -> float:
        """Seconds since the present stage began."""
        return self._now() - self._stage_began

    @property
    def total(self) -> float:
        """Seconds since the beginning."""
        return self._now() - self._began
