"""How long the stages of the demo take, and how much time is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Clock:
    """Times the stages of the run and says when each begins.

    Args:
        expected: seconds of each stage on two cores, in the order that they run.
        now: a monotonic clock, seconds.
    """

    def __init__(
        self, expected: Mapping[str, float], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._expected = dict(expected)
        self._now = now
        self._began = now()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """A stage; its time is kept under its name."""
        began = self._now()
        self.say(f"{text}; {self.left()} left")
        yield
        self.seconds[name] = round(self._now() - began, 1)

    def say(self, text: str) -> None:
        """Print a line with the time since the beginning."""
        print(f"[{self.total:4.0f} s] {text}", flush=True)

    def left(self) -> str:
        """Time until the end, from the stages that are not over; a slow machine stays slow."""
        over = sum(self._expected.get(name, 0.0) for name in self.seconds)
        slowness = max(self.total / over, 1.0) if over else 1.0
        ahead = sum(s for name, s in self._expected.items() if name not in self.seconds)
        seconds = slowness * ahead
        return f"about {round(seconds / 60)} min" if seconds > 90 else f"about {seconds:.0f} s"

    @property
    def total(self) -> float:
        """Seconds since the beginning."""
        return self._now() - self._began
