"""Times of the demo's stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Times the stages of the run and says when each begins.

    Attributes:
        seconds: of each stage that has ended.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """A stage; its time is kept under its name."""
        began = self.total
        self.say(text)
        yield
        self.seconds[name] = self.total - began

    def say(self, text: str) -> None:
        """Print a line with the time since the beginning."""
        print(f"[{self.total:4.0f} s] {text}", flush=True)

    @property
    def total(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began
