"""Probes: when speculation is tried again while it is off, and what the try tells.

**When.** The interval between probes is

    tau = sqrt(2 C (b + t_off) / (a g)),    a = 1, b = 60 s,

with C the seconds a probe costs, t_off the time OFF so far and g the relative gain speculation
would bring at this load if the drafter worked well (`break_even.prospect`). That is within a few
hundredths of the best fixed interval for dead times from minutes to hours, where doubling the
interval after each failure recovers late. Besides, all probes together may take at most
`_OVERHEAD` of the time, as long as that keeps the interval under a minute. A load half or twice as
large makes a probe due and starts t_off afresh. Where not even a good drafter would pay, as far
as step times are known, probes are rare and measure step times.

**What it tells.** A sequential test on the first drafts that a probe verifies says whether the
drafter has come back: Wald's sequential probability ratio test (Sequential Analysis, 1947) of the
hazard that brings a worthwhile gain against the one that only breaks even. It ends after a handful
of first drafts when the answer is clear, good or bad. In between it goes on; after `most_samples`
the observed rate decides; for a drafter without a state, which a wrong yes costs little, a rate
that is likely above break-even is enough. Rates near break-even are also collected over probes,
because a gain of a few per cent is worth finding but not worth hundreds of drafts each time.
"""

from __future__ import annotations

import math

from adaptive_spec.policies.switch.break_even import Prospect

# Successive first drafts are alike. A wrong yes costs a spell of speculation.
_CORRELATION = 3.0
"""First drafts that count as one independent draft where they speak for the drafter."""
# With independent drafts a good drafter fails in one probe of 12, and is tried again.
_ACCEPT, _REJECT = _CORRELATION * math.log(50.0), -math.log(12.0)
"""Log likelihood ratios that end a probe: errors of 1/50 and 1/12."""
_LEAST_TO_MEASURE = 64
"""Drafts verified where only step times are in question."""
_NEVER, _ALWAYS = 1e-3, 1.0 - 1e-3
"""Bounds of the acceptance that the test compares with."""
# A wrong yes costs a drafter with a state the passes of a trial, and another one hardly anything.
_SURE, _LIKELY = 2.5, 1.0
"""Standard errors above break-even at which the rate says yes: with a state, and without."""


class ProbeTest:
    """Sequential test of the first drafts that probes verify.

    Args:
        free: the drafter has no state, so that a wrong yes costs little: a rate that is likely
            above break-even goes on, and is enough in the end.
        most_samples: first drafts after which the rate decides.
    """

    def __init__(self, *, free: bool = False, most_samples: int = 256) -> None:
        self._free = free
        self._most = most_samples
        self._break_even = self._worthwhile = 0.5
        self.samples = self.accepted = 0
        """First drafts of this probe, and those of them that were accepted."""
        self.pooled_samples = self._pooled_accepted = 0.0
        """The same counts over all probes since `reset`; older ones fade."""

    def begin(self, outlook: Prospect) -> None:
        """Count the first drafts of a new probe, at this load."""
        self.samples = self.accepted = 0
        self.expect(outlook)

    def expect(self, outlook: Prospect) -> None:
        """Set the acceptance that the test compares with."""
        self._break_even = min(max(outlook.break_even, _NEVER), _ALWAYS)
        self._worthwhile = min(max(outlook.worthwhile, self._break_even + 0.02), _ALWAYS + 5e-4)

    def add(self, samples: int, accepted: int) -> None:
        """Add verified first drafts and the accepted ones among them."""
        self.samples += samples
        self.accepted += accepted
        self.pooled_samples += samples
        self._pooled_accepted += accepted
        if self.pooled_samples > 2.0 * self._most:
            # The older half counts half.
            self.pooled_samples *= 0.5
            self._pooled_accepted *= 0.5

    def verdict(self) -> bool | None:
        """Return whether speculation pays again; None while that is open."""
        if not self.samples:
            return None
        if self._break_even >= _ALWAYS:
            # No acceptance pays here; the probe only times steps with drafts.
            return False if self.samples >= _LEAST_TO_MEASURE else None
        high, low = self._worthwhile, self._break_even
        failed = self.samples - self.accepted
        ratio = self.accepted * math.log(high / low)
        ratio += failed * math.log((1.0 - high) / (1.0 - low))
        if ratio >= _ACCEPT:
            return True
        going_on = ratio > _REJECT or (
            self._free and self._above_break_even(self.accepted, self.samples, _LIKELY)
        )
        if going_on and self.samples < self._most:
            return None
        return self._pays_in_the_long_run()

    def reset(self) -> None:
        """Forget earlier probes."""
        self.samples = self.accepted = 0
        self.pooled_samples = self._pooled_accepted = 0.0

    def _pays_in_the_long_run(self) -> bool:
        """Whether acceptance over all probes is clearly above the break-even."""
        samples = self.pooled_samples
        if samples < self._most:
            return False
        sure = _LIKELY if self._free else _SURE
        return self._above_break_even(self._pooled_accepted, samples, sure)

    def _above_break_even(self, accepted: float, samples: float, errors: float) -> bool:
        """Whether a rate is this many standard errors above the break-even."""
        rate = accepted / samples
        return (
            rate - errors * math.sqrt(max(rate * (1.0 - rate), 1e-3) / samples) > self._break_even
        )


_SETTLING_SECONDS = 60.0
"""b of the interval (seconds)."""
_LEAST_GAIN, _LEAST_COST = 0.02, 1e-4
"""Least g and C of the interval (a share, seconds)."""
_OVERHEAD = 0.002
"""Share of the time that probes may take."""
_BUDGET_INTERVAL_SECONDS = 60.0
"""Longest interval that `_OVERHEAD` asks for (seconds)."""
_SLOWEST_PROBE_SECONDS = 600.0
"""Longest interval between two probes (seconds)."""
_SWING_OVERHEAD = 0.01
"""Share of the time that probes may take where the load swings."""


class ProbeSchedule:
    """Time of the next probe.

    Attributes:
        probes: number of probes so far.
        probe_cost: seconds that a probe costs; a guess of the owner's until one has been made.
        off_since: start of t_off.
        next_probe: when the next one is due.
    """

    def __init__(self) -> None:
        self.probe_cost = 0.0
        self.off_since = -math.inf
        self.next_probe = 0.0
        self.probes = 0
        self._last_probe = 0.0
        self._load = 0

    def begin(self, now: float, load: int, gain: float, *, afresh: bool) -> None:
        """Set the first probe's time as speculation stops; `afresh` starts t_off at 0."""
        if afresh:
            self.off_since = now
        self._load = load
        self._last_probe = now
        self.next_probe = now + self._interval(now, gain)

    def another_load(self, load: int) -> bool:
        """The batch is half or twice as large as the one that t_off began with."""
        return load >= 2 * self._load or 2 * load <= self._load

    def bring_forward(self, now: float, load: int) -> None:
        """Start t_off afresh and probe soon; loads that swing must not mean probes without end."""
        self._load = load
        self.off_since = now
        soonest = self._last_probe + self.probe_cost / _SWING_OVERHEAD
        self.next_probe = min(self.next_probe, max(soonest, now))

    def due(self, now: float) -> bool:
        """Whether a probe is due; a due probe counts as begun."""
        # A clock that jumped back must not postpone the probe for ever.
        jumped = self.next_probe - now > _SLOWEST_PROBE_SECONDS
        if now < self.next_probe and not jumped:
            return False
        self.probes += 1
        return True

    def probed(self, now: float, cost: float, gain: float) -> None:
        """Set the time of the next probe, after one that has cost these seconds."""
        self._last_probe = now
        self.probe_cost += 0.5 * (cost - self.probe_cost)
        self.next_probe = now + self._interval(now, gain)

    def by_law(self, off: float, gain: float) -> float:
        """tau after `off` seconds of OFF."""
        cost = max(self.probe_cost, _LEAST_COST)
        return math.sqrt(2.0 * cost * (_SETTLING_SECONDS + off) / max(gain, _LEAST_GAIN))

    def _interval(self, now: float, gain: float) -> float:
        cost = max(self.probe_cost, _LEAST_COST)
        budget = min(cost / _OVERHEAD, _BUDGET_INTERVAL_SECONDS)
        by_law = self.by_law(max(now - self.off_since, 0.0), gain)
        return min(max(by_law, budget), _SLOWEST_PROBE_SECONDS)
