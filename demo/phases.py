"""Stretches of constant load, as the status file tells of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .status import counts_of, k_of_drafting, mode_of


@dataclass
class Phase:
    """A stretch of constant concurrency, as seen in the status file while it lasted.

    Attributes:
        began, ended: monotonic clock of this machine, which the step trace uses too.
        counts: between the first and the last status file of this phase (`status.counts_of`).
        counted_seconds: the time between them.
        status, before: the last status file, and the one before it.
        seconds: the time between those two.
    """

    concurrency: int
    began: float = 0.0
    ended: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    counted_seconds: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    mode: str = ""

    @property
    def tokens_per_second(self) -> float:
        """Emitted in decoding steps, over the time the status files span."""
        return self.counts["emitted"] / self.counted_seconds if self.counted_seconds else 0.0


class Second(NamedTuple):
    """Between two status files.

    Attributes:
        time: of the later one, seconds since the watcher began.
        concurrency: as asked for.
        k: drafts verified per request and step, where any were: text that copies nothing has none
            at any load. None if there were none at all.
        rate: tokens per second.
    """

    time: float
    concurrency: int
    k: float | None
    rate: float


class Watcher:
    """Follows a server's status through the phases.

    Attributes:
        seconds: what every status file said.
    """

    def __init__(self, began: float = 0.0) -> None:
        self.seconds: list[Second] = []
        self._began = began
        self._last: dict[str, Any] = {}
        self._last_time = 0.0

    def update(self, phase: Phase, status: dict[str, Any] | None, now: float) -> bool:
        """Add a status of this time, in seconds; False if it holds nothing new."""
        if status is None or status["steps"] == self._last.get("steps"):
            return False
        if self._last:
            phase.seconds = now - self._last_time
            counts = counts_of(status) - counts_of(self._last)
            phase.counts += counts
            phase.counted_seconds += phase.seconds
            rate = counts["emitted"] / phase.seconds
            second = Second(now - self._began, phase.concurrency, k_of_drafting(counts), rate)
            self.seconds.append(second)
        phase.mode = mode_of(status, self._last)
        phase.status, phase.before = status, self._last
        self._last, self._last_time = status, now
        return True
