"""May the drafter stop, and when does it come back?

Requests that live through a step without the drafter's pass (OFF-cold) have no drafts to their end.
`lost` adds up, over steps that drafted or kept the drafter warm,

    T - n T_cold / B,    n: tokens a step emitted, T_cold: a step of B requests without the drafter,

and is at least -4 s. OFF-cold begins once it exceeds s, a share of the mean lifetime of requests:
what those alive may lose if the load falls. The drafter comes back after s / `OVERHEAD`, doubled at
each failure until a spell earns s, or as soon as the load halves or doubles.

T is measured. In a step with prompts it is what the belief says of its decoding, since the time of
prompts is due whatever is drafted.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.step import Capability, IntArray

STAKE = 0.15
"""Share of a mean lifetime that the requests alive may lose without the drafter."""
OVERHEAD = 0.02
"""Share of the time that returns to find out whether drafts pay may cost."""
ON_TRIAL = 0.5
"""Factor of the stake after a return that followed a loss."""
CREDIT = 4.0
"""Most that earlier gains count for, in stakes."""
LONGEST_WAIT = 600.0
"""Seconds after which the drafter comes back at the latest."""
_PROMPT_STEPS = 64.0
"""Steps over which the prompt tokens of a step are averaged."""
_ENDED = 256
"""Ended requests over which lifetimes are averaged."""


class Switch:
    """ON, or OFF-cold, on one engine.

    Attributes:
        cold: the drafter makes no pass.
        lost: seconds that it has lost.
        until: when it comes back (seconds, monotonic).
    """

    def __init__(self, capability: Capability) -> None:
        self._can = capability.cold_off and capability.off_pass
        self.cold, self.lost, self.until, self.since = False, 0.0, 0.0, 0.0
        self._wait = 0.0
        self._batch = 1
        self._lived_seconds, self._ended = 0.0, 0.5
        self._share, self._prompts = 0.0, 0.0
        self._steps = floats(0.0)

    @property
    def shared_prompts(self) -> float:
        """Prompt tokens per step that come whatever is drafted.

        Drafts leave two of the steps of a request as they are: that of its prompt, and the last.
        """
        return self._share * self._prompts

    @property
    def stake(self) -> float:
        """s, seconds."""
        lifetime = self._lived_seconds / self._ended
        return STAKE * lifetime * (ON_TRIAL if self._wait else 1.0)

    def returns(self, now: float, batch: int) -> bool:
        """Whether the drafter comes back in this step."""
        swung = max(batch, self._batch) >= 2 * min(batch, self._batch)
        if not self.cold or not (now >= self.until or swung or self.until - now > LONGEST_WAIT):
            return False
        self.cold, self.lost = False, 0.0
        return True

    def learn(
        self, now: float, slots: IntArray, batch: int, seconds: float, lost: float, prefill: int
    ) -> None:
        """Learn from a step: its requests [B], seconds without prompts, and those it has lost."""
        self._steps[slots] = self._steps[slots] + 1.0
        self._lived_seconds += batch * seconds
        self._prompts += (prefill - self._prompts) / _PROMPT_STEPS
        if not self._can or self.cold:
            return
        stake = self.stake
        self.lost = max(self.lost + lost, -CREDIT * stake)
        if self.lost <= -stake:
            self._wait = 0.0
        if self.lost > stake:
            self._wait = min(max(2.0 * self._wait, stake / OVERHEAD), LONGEST_WAIT)
            self.cold, self.since, self.until = True, now, now + self._wait
            self._batch = batch

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        each = np.minimum(2.0 / (1.0 + self._steps[slots]), 1.0)
        self._share += float((each - self._share).sum()) / max(64.0, len(slots))
        self._steps.reset(slots)
        self._ended += len(slots)
        if self._ended > _ENDED:
            self._ended *= 0.5
            self._lived_seconds *= 0.5
