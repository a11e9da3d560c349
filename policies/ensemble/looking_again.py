"""When to look again while the leader does not speculate.

Nobody learns anything from steps without drafts, so an ensemble whose leader is off would stay
off. Looks are spaced by the law of `adaptive_spec.planning.on_off.modes`: tau = sqrt(2 C (b +
t_off) / g), with C the seconds that a look costs. A look drafts one position and verifies it for
half of the requests until enough has been seen. A member that looks by itself in the meantime puts
the next one off.
"""

from __future__ import annotations

import math

_SETTLING_SECONDS = 60.0
_GAIN = 0.3
_SLOWEST_SECONDS = 600.0
_SAMPLES = 64
_MOST_STEPS = 64
_FIRST_COST_STEPS = 3.0
"""Until one has been made: what a look costs, in steps."""


class LookingAgain:
    """The schedule of looks."""

    def __init__(self) -> None:
        self.looking = False
        self._off_since: float | None = None
        self._next = math.inf
        self._samples = 0
        self._steps = 0
        self._cost = 0.0

    def step(self, *, off: bool, member_looks: bool, step_seconds: float, now: float) -> bool:
        """Is the coming step part of a look? Says `off` whether the leader does not speculate."""
        if not off:
            self._off_since = None
            self.looking = False
            return False
        if self._off_since is None or now < self._off_since:
            self._off_since = now
            self._next = now + self._interval(now, step_seconds)
        if member_looks:
            self.looking = False
            self._next = now + self._interval(now, step_seconds)
            return False
        if not self.looking and now >= self._next:
            self.looking = True
            self._samples = self._steps = 0
            self._cost = 0.0
        if self.looking:
            self._steps += 1
        return self.looking

    def seen(self, *, samples: int, lost_seconds: float, now: float, step_seconds: float) -> None:
        """A step of a look is over: drafts it observed, and what it cost."""
        if not self.looking:
            return
        self._samples += samples
        self._cost += max(lost_seconds, 0.0)
        if self._samples >= _SAMPLES or self._steps >= _MOST_STEPS:
            self.looking = False
            self._next = now + self._interval(now, step_seconds)

    def _interval(self, now: float, step_seconds: float) -> float:
        off = now - (now if self._off_since is None else self._off_since)
        cost = self._cost if self._cost > 0.0 else _FIRST_COST_STEPS * step_seconds
        return min(math.sqrt(2.0 * cost * (_SETTLING_SECONDS + off) / _GAIN), _SLOWEST_SECONDS)
