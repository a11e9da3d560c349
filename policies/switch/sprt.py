"""Has the drafter come back? A sequential test on the first drafts that a probe verifies.

Wald's sequential probability ratio test (Sequential Analysis, 1947) of the hazard that brings a
worthwhile gain against the one that only breaks even. It ends after a handful of first drafts
when the answer is clear, good or bad. In between it goes on; after `most_samples` the observed
rate decides. Rates near break-even are also collected over probes, because a gain of a few
per cent is worth finding but not worth hundreds of drafts each time.
"""

from __future__ import annotations

import math

from adaptive_spec.policies.switch.break_even import Prospect

# Successive first drafts are alike. A wrong yes costs a spell of speculation.
_CORRELATION = 3.0
"""First drafts of a request that count as one for a drafter."""
# With independent drafts a good drafter fails in one probe of 12, and is tried again.
_ACCEPT, _REJECT = _CORRELATION * math.log(50.0), -math.log(12.0)
"""Log likelihood ratios that end a probe: errors of 1/50 and 1/12."""
_LEAST_TO_MEASURE = 32
"""Drafts verified where only step times are in question."""
_NEVER, _ALWAYS = 1e-3, 1.0 - 1e-3


class ProbeTest:
    """Sequential test of the first drafts that probes verify.

    Args:
        most_samples: first drafts after which the rate decides.
    """

    def __init__(self, most_samples: int = 256) -> None:
        self._most = most_samples
        self._break_even = self._worthwhile = 0.5
        self.samples = self.accepted = 0
        """First drafts of this probe, and those of them that were accepted."""
        self.pooled_samples = self._pooled_accepted = 0.0
        """The same counts over all probes since `reset`; older ones fade."""

    def begin(self, outlook: Prospect) -> None:
        """A probe starts, at this load."""
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
        """True: it pays again. False: it does not. None: not known yet."""
        if not self.samples:
            return None
        if self._break_even >= _ALWAYS:
            return False if self.samples >= _LEAST_TO_MEASURE else None
        high, low = self._worthwhile, self._break_even
        failed = self.samples - self.accepted
        ratio = self.accepted * math.log(high / low)
        ratio += failed * math.log((1.0 - high) / (1.0 - low))
        if ratio >= _ACCEPT:
            return True
        if ratio <= _REJECT or self.samples >= self._most:
            return self._pays_in_the_long_run()
        return None

    def reset(self) -> None:
        """Forget earlier probes."""
        self.samples = self.accepted = 0
        self.pooled_samples = self._pooled_accepted = 0.0

    def _pays_in_the_long_run(self) -> bool:
        """Whether acceptance over all probes is clearly above the break-even (after each)."""
        samples = self.pooled_samples
        if samples < self._most:
            return False
        rate = self._pooled_accepted / samples
        deviation = math.sqrt(max(rate * (1.0 - rate), 1e-3) / samples)
        return rate - 2.5 * deviation > self._break_even
