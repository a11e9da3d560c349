"""May the drafter stop, and when does it come back?

Requests that live through a step without the drafter's pass (OFF-cold) have no drafts to their end.
`lost` adds up, over steps that drafted or kept the drafter warm,

    T - n T_cold / B,    n: tokens a step emitted, T_cold: a step of B requests without the drafter,

and is at least -R. OFF-cold begins once it exceeds

    s = f g R,    R = E[l^2] / (2 E[l]) seconds,

which the requests alive lose, each for the time R that it has still to live (l: lengths of
requests), if the load falls: g is the share of it that drafts would save at half the load, the mean
of a fall to nothing, by beliefs as hopeful as they may be; f is how often the load has fallen by
half in a lifetime, at most once. If the beliefs expect the next step to gain, f is 1: `lost` of few
requests wanders far.

The drafter comes back after

    w = max(lost / OVERHEAD, sqrt(2 lost T / h)),

or as soon as the load halves or doubles: what has lasted for T, since the first stop after a spell
that earned s, may end within the next second with probability 1 / T, and each second then unseen
costs h, the share that drafts would save at this load were they as good as at first; w makes what
returns lose and what is missed least. Requests alive have no drafts at a return, and g begins at 1:
as long as it stays there, `OVERHEAD` of the time without the drafter may be lost.

T is measured. In a step with prompts it is what the belief says of its decoding, since the time of
prompts is due whatever is drafted.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.step import Capability, IntArray

FALLS = 0.3
"""Falls of the load that are assumed in a first lifetime."""
FIRST_LIFETIME = 10.0
"""Seconds that a request is assumed to live before any has ended."""
REMEMBERED = 16.0
"""Lifetimes over which falls are counted."""
OVERHEAD = 0.02
"""Share of the time that returns may cost that find out whether drafts pay."""
ON_TRIAL = 0.5
"""Factor of the stake after a return that followed a loss."""
LONGEST_WAIT = 600.0
"""Seconds after which the drafter comes back at the latest."""
_LOAD_STEPS = 32.0
"""Steps over which the load, and g, are averaged."""
_PROMPT_STEPS = 2.0 * _LOAD_STEPS
"""Steps over which the prompt tokens of a step are averaged."""
_ENDED = 8.0 * _LOAD_STEPS
"""Ended requests over which lifetimes are averaged."""


class Switch:
    """ON, or OFF-cold, on one engine.

    Attributes:
        cold: the drafter makes no pass.
        lost: seconds that it has lost.
        until: when it comes back (seconds, monotonic).
        prompts: prompt tokens of a step, in the mean.
        losing: the beliefs expect the next step to lose.
    """

    def __init__(self, capability: Capability) -> None:
        none = 0 in capability.uniform_values
        # A look-up that follows the depth does not run at K = 0, which is a plan like any other.
        runs = capability.off_pass or not capability.steers_depth
        self._can = capability.cold_off and runs and none
        self.cold, self.lost, self.until, self.since = False, 0.0, 0.0, 0.0
        self._losing_since, self._look = math.inf, 0.0
        self._saved, self._again, self.losing = 1.0, 1.0, False
        self._batch = 1
        self._lived_seconds, self._ended = 0.5 * FIRST_LIFETIME, 0.5
        self._share, self.prompts = 0.0, 0.0
        self._falls = self._lifetimes = 0.0
        self._load, self._extreme, self._seen, self._fell = 0.0, 1.0, 0, False
        self._length, self._square = 0.5, 1.0
        self._steps = floats(0.0)

    @property
    def may_stop(self) -> bool:
        """Return whether the drafter runs, and may be stopped."""
        return self._can and not self.cold

    @property
    def shared_prompts(self) -> float:
        """Prompt tokens per step that come whatever is drafted.

        Drafts leave two of the steps of a request as they are: that of its prompt, and the last.
        """
        return self._share * self.prompts

    @property
    def stake(self) -> float:
        """s, seconds."""
        falls = min((FALLS + self._falls) / (1.0 + self._lifetimes), 1.0)
        return self._stake_if(falls)

    def _stake_if(self, falls: float) -> float:
        """Return s if the load falls as often in a lifetime."""
        whole = falls * self._still * (ON_TRIAL if self._losing_since < math.inf else 1.0)
        return self._saved * max(whole, self._look)

    @property
    def _still(self) -> float:
        return self.lifetime * 0.5 * self._square * self._ended / self._length**2

    @property
    def lifetime(self) -> float:
        """Mean seconds that a request decodes."""
        return self._lived_seconds / self._ended

    def _watch_load(self, batch: int, seconds: float) -> None:
        """Count the falls of the load to half, and the lifetimes in which they came."""
        self._seen += 1
        self._load += (batch - self._load) / min(self._seen, _LOAD_STEPS)
        self._lifetimes += seconds / max(self.lifetime, seconds)
        # The highest load since a rise, or the lowest since a fall.
        self._extreme = (min if self._fell else max)(self._extreme, self._load)
        if self._fell and self._load >= 2.0 * self._extreme:
            self._fell, self._extreme = False, self._load
        elif not self._fell and self._load <= 0.5 * self._extreme:
            self._fell, self._extreme, self._falls = True, self._load, self._falls + 1.0
        if self._lifetimes > REMEMBERED:
            self._lifetimes, self._falls = 0.5 * self._lifetimes, 0.5 * self._falls

    def hope(self, saved: float, again: float, steps: int) -> None:
        """Adopt what the beliefs say of so many steps.

        Args:
            saved: g, 0 if no request may have drafts.
            again: h, likewise.
            steps: for which they say it.
        """
        # A belief that has jumped may take back what it says.
        self._saved += (saved - self._saved) * min(steps / min(self._seen + 1, _LOAD_STEPS), 1.0)
        self._again = again

    def returns(self, now: float, batch: int) -> bool:
        """Return whether the drafter comes back in this step."""
        load = max(batch, 1)  # that of the next request, if nothing decodes
        swung = max(load, self._batch) >= 2 * min(load, self._batch)
        if not self.cold or not (now >= self.until or swung or self.until - now > LONGEST_WAIT):
            return False
        # Requests alive have no drafts: the drafter waits for some that join.
        self.cold, self.lost, self._saved = False, 0.0, 1.0
        self._look = OVERHEAD * (now - self.since)
        return True

    def learn(
        self,
        now: float,
        slots: IntArray,
        batch: int,
        seconds: float,
        lost: float,
        prefill: int,
    ) -> None:
        """Learn from a step.

        Args:
            now: seconds, monotonic.
            slots: [B] its requests.
            batch: B.
            seconds: that it took without prompts.
            lost: of these.
            prefill: prompt tokens in it.
        """
        self._steps[slots] = self._steps[slots] + 1.0
        self._lived_seconds += batch * seconds
        self._watch_load(batch, seconds)
        self.prompts += (prefill - self.prompts) / _PROMPT_STEPS
        if not self.may_stop:
            return
        self.lost = max(self.lost + lost, -self._still)
        if self.lost < -self.stake:
            self._losing_since, self._look = math.inf, 0.0
        if self.lost > (self.stake if self.losing else self._stake_if(1.0)):
            self.stop(now, batch)

    def stop(self, now: float, batch: int) -> None:
        """Begin OFF-cold at this load."""
        lost = max(self.lost, self.stake)
        self._losing_since = min(self._losing_since, now)
        missed = math.sqrt(2.0 * lost * (now - self._losing_since) / max(self._again, 1e-9))
        self.cold, self.since = True, now
        self.until = now + min(max(lost / OVERHEAD, missed), LONGEST_WAIT)
        self._batch = batch

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        each = np.minimum(2.0 / (1.0 + self._steps[slots]), 1.0)
        self._share += float((each - self._share).sum()) / max(64.0, len(slots))
        steps = self._steps[slots]
        self._length += float(steps.sum())
        self._square += float((steps * steps).sum())
        self._steps.reset(slots)
        self._ended += int(np.count_nonzero(steps))
        if self._ended > _ENDED:
            self._ended, self._length, self._square = (
                0.5 * self._ended,
                0.5 * self._length,
                0.5 * self._square,
            )
            self._lived_seconds *= 0.5
