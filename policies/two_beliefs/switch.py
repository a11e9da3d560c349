"""May the drafter stop, and when does it come back?

Requests that live through a step without the drafter's pass (OFF-cold) have no drafts to their end.
`lost` adds up, over steps that drafted or kept the drafter warm,

    T - n T_cold / B,    n: tokens a step emitted, T_cold: a step of B requests without the drafter,

and is at least -4 s. OFF-cold begins once it exceeds s, what those alive may lose if the load
falls: a share of a mean lifetime of requests, times how often the load has swung by a factor of two
in a lifetime, at most once. The drafter comes back after s / `OVERHEAD`, doubled at
each failure until a spell earns s, or as soon as the load halves or doubles.

T is measured. In a step with prompts it is what the belief says of its decoding, since the time of
prompts is due whatever is drafted.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.step import Capability, IntArray

STAKE = 0.3
"""Share of a mean lifetime that the requests alive lose without the drafter, if the load falls."""
SWINGS = 0.3
"""Swings of the load that are assumed in a first lifetime."""
FIRST_LIFETIME = 10.0
"""Seconds that a request is assumed to live before any has ended."""
REMEMBERED = 16.0
"""Lifetimes over which swings are counted."""
OVERHEAD = 0.02
"""Share of the time that returns to find out whether drafts pay may cost."""
ON_TRIAL = 0.5
"""Factor of the stake after a return that followed a loss."""
CREDIT = 4.0
"""Most that earlier gains count for, in stakes."""
LONGEST_WAIT = 600.0
"""Seconds after which the drafter comes back at the latest."""
_LOAD_STEPS = 32.0
"""Steps over which the load is averaged before it counts as swung."""
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
        prompts: prompt tokens of a step, in the mean.
    """

    def __init__(self, capability: Capability) -> None:
        none = 0 in capability.uniform_values
        self._can = capability.cold_off and capability.off_pass and none
        self.cold, self.lost, self.until, self.since = False, 0.0, 0.0, 0.0
        self._wait = 0.0
        self._batch = 1
        self._lived_seconds, self._ended = 0.5 * FIRST_LIFETIME, 0.5
        self._share, self.prompts = 0.0, 0.0
        self._swings = self._lifetimes = 0.0
        self._load, self._anchor, self._seen = 0.0, 1.0, 0
        self._steps = floats(0.0)

    @property
    def shared_prompts(self) -> float:
        """Prompt tokens per step that come whatever is drafted.

        Drafts leave two of the steps of a request as they are: that of its prompt, and the last.
        """
        return self._share * self.prompts

    @property
    def stake(self) -> float:
        """s, seconds."""
        swings = min((SWINGS + self._swings) / (1.0 + self._lifetimes), 1.0)
        return STAKE * self.lifetime * swings * (ON_TRIAL if self._wait else 1.0)

    @property
    def lifetime(self) -> float:
        """Mean seconds that a request decodes."""
        return self._lived_seconds / self._ended

    def _watch_load(self, batch: int, seconds: float) -> None:
        """Count the swings of the load, and the lifetimes in which they came."""
        self._seen += 1
        self._load += (batch - self._load) / min(self._seen, _LOAD_STEPS)
        if self._seen <= _LOAD_STEPS:
            self._anchor = self._load
        self._lifetimes += seconds / max(self.lifetime, seconds)
        if not 0.5 * self._anchor <= self._load <= 2.0 * self._anchor:
            self._swings, self._anchor = self._swings + 1.0, self._load
        if self._lifetimes > REMEMBERED:
            self._lifetimes, self._swings = 0.5 * self._lifetimes, 0.5 * self._swings

    def returns(self, now: float, batch: int) -> bool:
        """Return whether the drafter comes back in this step."""
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
        self._watch_load(batch, seconds)
        self.prompts += (prefill - self.prompts) / _PROMPT_STEPS
        if not self._can or self.cold:
            return
        stake = self.stake
        self.lost = max(self.lost + lost, -CREDIT * stake)
        if self.lost <= -stake:
            self._wait = 0.0
        if self.lost > stake:
            self.stop(now, batch)

    def stop(self, now: float, batch: int) -> None:
        """Begin OFF-cold at this load."""
        self._wait = min(max(2.0 * self._wait, self.stake / OVERHEAD), LONGEST_WAIT)
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
