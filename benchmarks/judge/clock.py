"""The clock of a modelled device, and the record of what an engine ran."""

from __future__ import annotations

import math
import random
from typing import Any

from .device import Charge, Work


class VirtualClock:
    """Seconds on the device's clock. It stands still but for `advance`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again, before an idle engine's next load: the same load meets the same times."""
        self._now = 1000.0

    def __call__(self) -> float:
        """Return the time (seconds)."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._now += seconds


class Noise:
    """Seconds of steps on a device that is not alone: log-normal factors of mean 1, a neighbour.

    The n-th step has the same factor in every arm. The neighbour comes and goes by the seconds that
    the device has worked.

    Args:
        deviation: standard deviation of the logarithm; 0: no noise.
        seed: of the draws.
        neighbour: seconds alone, seconds beside a neighbour, and the factor of step times
            meanwhile; over and over. Empty: always alone.
    """

    def __init__(self, deviation: float, seed: int, neighbour: tuple[float, ...] = ()) -> None:
        self._deviation, self._random = deviation, random.Random(seed)
        self._neighbour, self._worked = neighbour, 0.0

    def seconds(self, alone: float) -> float:
        """Return the seconds of the next step, which takes so many by itself."""
        if deviation := self._deviation:
            alone *= math.exp(self._random.gauss(-(deviation**2) / 2, deviation))
        if self._neighbour:
            before, beside, factor = self._neighbour
            if self._worked % (before + beside) >= before:
                alone *= factor
            self._worked += alone
        return alone


class Recorder:
    """Steps from launch to completion; a completed step moves the clock.

    The device works at one step after the other, without a pause in between: where an engine
    schedules ahead, a step that was launched while another one ran begins when that one ends. So
    each step moves the clock by its own seconds, when its results arrive.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.charge: Charge | None = None
        self.completed: list[Work] = []
        self.seconds: list[float] = []
        """The list has one entry per completed step."""
        self.noise = Noise(0.0, 0)
        """Noise of the steps from now on."""
        self._under_way: dict[int, Work] = {}
        self._last = Work()

    def use(self, charge: Charge) -> None:
        """Begin again on a device, before an idle engine's next run."""
        self.charge = charge
        self.clock.reset()

    def launched(self, key: int, work: Work) -> None:
        """A step was launched; passes of the drafter that follow are its own."""
        self._last = self._under_way[key] = work

    def drafter_ran(self, passes: int = 1) -> None:
        """The drafter ran so many passes in the step launched last."""
        self._last.passes += passes

    def arrived(self, key: int, results: Any = None) -> Work | None:
        """The results of a step arrived: let its time pass. None if it had no tokens."""
        work = self._under_way.pop(key, None)
        if work is not None:
            assert self.charge is not None, "no device is in use"
            seconds = self.noise.seconds(self.charge.seconds(work))
            self.clock.advance(seconds)
            self.completed.append(work)
            self.seconds.append(seconds)
        return work

    def pop_steps(self) -> list[Work]:
        """Return the steps completed since the last call."""
        steps, self.completed, self.seconds = self.completed, [], []
        return steps
