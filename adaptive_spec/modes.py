"""When to stop speculating altogether, and when to look again.

ON: the planner decides, and explores. OFF: K = 0 without exploration, save for probes. How long a
bad time lasts isn't known in advance, so speculation goes OFF once the seconds lost by staying on
reach the cost of coming back (ski rental: at most twice the best). While OFF, a probe is made
after

    tau = sqrt(2 C (b + t_off) / (a g)),    a = 1, b = 60 s,

with C the seconds a probe costs, t_off the time OFF so far and g the relative gain that coming
back would bring: close to the best fixed interval for dead times from minutes to hours, where
doubling the interval after each failure recovers late.
"""

from __future__ import annotations

import math

from adaptive_spec.values import Mode

_SLOWEST_PROBE_SECONDS = 600.0


class ModeMachine:
    """ON, OFF and the probes in between, for one load.

    Args:
        off_mode: what OFF means on this engine: OFF_WARM or OFF_COLD.
        expected_gain: g, the gain assumed if speculation became worth while again.
        settling_seconds: b of the probe law.
        least_samples, most_samples: observations that end a probe: the least when the outcome
            is clear, the most when it is near break-even.
    """

    def __init__(
        self,
        off_mode: Mode = Mode.OFF_WARM,
        *,
        expected_gain: float = 0.3,
        settling_seconds: float = 60.0,
        least_samples: int = 32,
        most_samples: int = 256,
    ) -> None:
        self.off_mode = off_mode
        self.mode = Mode.ON
        self.probing = False
        self.switches = 0
        self._gain = expected_gain
        self._settling = settling_seconds
        self._least, self._most = least_samples, most_samples
        self._lost = 0.0
        self._probe_cost = 0.0
        self._probe_samples = 0
        self._off_since = 0.0
        self._next_probe = 0.0
        self._load = -1

    def step(self, *, advantage: float, step_seconds: float, load: int, now: float) -> Mode:
        """The mode of the coming step.

        Args:
            advantage: goodput of the best plan that speculates, over that of K = 0, minus 1.
            step_seconds: predicted duration of a step at K = 0.
            load: load bin; crossing into another one makes a probe due.
            now: monotonic seconds.
        """
        if self._probe_cost <= 0.0:
            # Until one has been made: some dozen steps at a tenth of their time.
            self._probe_cost = 3.0 * step_seconds
        if self.mode is Mode.ON:
            if advantage > 0.0:
                self._lost = 0.0
            elif self._lost >= self._probe_cost:
                self._switch_off(now, load)
        elif self.probing:
            clear = abs(advantage) > 0.05
            enough = self._least if clear else self._most
            if self._probe_samples >= enough or (advantage > 0.2 and self._probe_samples >= 8):
                self.probing = False
                if advantage > 0.0:
                    self.mode = Mode.ON
                    self.switches += 1
                    self._lost = 0.0
                else:
                    self._next_probe = now + self._interval(now)
        else:
            if load != self._load:
                self._load = load
                self._off_since = now
                self._next_probe = min(self._next_probe, now)
            # A clock that jumped back must not postpone the probe for ever.
            if now >= self._next_probe or self._next_probe - now > _SLOWEST_PROBE_SECONDS:
                self.probing = True
                self._probe_samples = 0
        return self.mode

    def spent(self, *, seconds: float, samples: int) -> None:
        """A step explored or probed: seconds it lost against K = 0, observations it brought."""
        if self.mode is Mode.ON:
            self._lost += max(seconds, 0.0)
        elif self.probing:
            if self._probe_samples == 0:
                self._probe_cost = 0.0
            self._probe_cost += max(seconds, 0.0)
            self._probe_samples += samples

    def _switch_off(self, now: float, load: int) -> None:
        self.mode = self.off_mode
        self.switches += 1
        self._off_since = now
        self._load = load
        self._next_probe = now + self._interval(now)

    def _interval(self, now: float) -> float:
        off = max(now - self._off_since, 0.0)
        cost = max(self._probe_cost, 1e-4)
        interval = math.sqrt(2.0 * cost * (self._settling + off) / self._gain)
        return min(interval, _SLOWEST_PROBE_SECONDS)
