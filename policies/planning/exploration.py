"""Exploration against lock-in, and against a cost model that has only seen one K.

A K that has shrunk stops observing deeper positions and would stay small for ever. So one request
in eight verifies one draft more, every eighth step until that position is well known and every
64th afterwards. It is rarer where the deeper pass costs more than a share of the gain that the
observations leave open, and every 64th step where they leave none open. Drafts that fill padding
are free and come first.
Where nobody speculates, the first draft in a step is dear (see `policies.step_time.model`) and the
others are cheap: then half of the requests explore together, and a new position less often. (Half,
because steps with K = 1 for all do not tell the price of the first draft from that of the others.)
Requests are drawn at random, independently of anything about their drafts, and the probability is
recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from adaptive_spec.step import Capability, FloatArray, IntArray, Level

FRACTION = 1.0 / 8.0
"""Of the requests, in a step in which others speculate anyway."""
FRACTION_OF_NONE = 1.0 / 2.0
"""Of the requests, in a step in which nobody else speculates."""
_EARLY_PERIOD = 8
LATE_PERIOD = 64
"""Steps between explorations of a position that is well known."""
_KNOWN_AFTER = 500
_WORTH = 4.0
"""Times that the gain left open exceeds the cost of explorations, spread over their period."""


class Explorer:
    """Decides which requests verify one draft more than the planner wants."""

    def __init__(self, capability: Capability, seed: int) -> None:
        self._capability = capability
        self._random = np.random.default_rng(seed)

    def due(
        self,
        step: int,
        depth: int,
        observations: IntArray,
        *,
        nobody: bool,
        may_gain: Callable[[], float] = lambda: math.inf,
    ) -> bool:
        """Should the position after `depth` be explored in the step after this one?

        Args:
            step: number of the step.
            depth: draft depth that is planned.
            observations: [Kmax] times each position has been seen.
            nobody: no request is to speculate.
            may_gain: what it may gain at most, by all that is known, over what it costs.
        """
        if depth >= self._capability.max_draft_tokens or step % _EARLY_PERIOD:
            return False
        period = LATE_PERIOD
        if observations[depth] < _KNOWN_AFTER:
            # Where nobody speculates nothing else tells whether it pays.
            gain, least, period = may_gain(), 0.0 if nobody else _WORTH, _EARLY_PERIOD
            while period < LATE_PERIOD and gain * period <= least:
                period *= 2
        # As often per request, whatever the fraction; a uniform engine explores with all.
        if self._capability.level is Level.UNIFORM:
            period = int(period / FRACTION)
        elif nobody:
            period = min(int(period * FRACTION_OF_NONE / FRACTION), LATE_PERIOD)
        return step % period == 0

    def deeper(self, depth: int) -> int:
        """The next depth the engine can run."""
        above = [k for k in self._capability.uniform_values if k > depth]
        return above[0] if above else depth

    def extend(
        self, verify: IntArray, available: IntArray, fraction: float = FRACTION
    ) -> tuple[IntArray, FloatArray]:
        """One draft more for a random fraction of the requests; also their propensities [B]."""
        batch = len(verify)
        if self._capability.level is Level.UNIFORM:
            k = self.deeper(int(verify.max(initial=0)))
            return np.minimum(available, k), np.ones(batch)
        can = verify < available
        chosen = can & (self._random.random(batch) < fraction)
        if not chosen.any() and can.any():
            # Small batches: at least one, each as likely.
            chosen[self._random.choice(np.flatnonzero(can))] = True
        count = max(int(can.sum()), 1)
        likely = fraction + (1.0 - fraction) ** count / count
        propensity = np.where(can & (count > 1), np.where(chosen, likely, 1.0 - likely), 1.0)
        return verify + chosen, propensity

    def some(self, available: IntArray, requests: int) -> tuple[IntArray, FloatArray]:
        """The mildest K for a few random requests (at level UNIFORM for all), 0 for the others.

        Also their propensities [B].
        """
        k = self.deeper(0)
        if self._capability.level is Level.UNIFORM:
            return np.minimum(available, k), np.ones(len(available))
        verify = np.zeros_like(available)
        propensity = np.ones(len(available))
        can = np.flatnonzero(available)
        chosen = self._random.permutation(can)[:requests]
        verify[chosen] = np.minimum(available[chosen], k)
        if requests < can.size:
            propensity[can] = 1.0 - requests / can.size
            propensity[chosen] = requests / can.size
        return verify, propensity

    def fill_padding(self, verify: IntArray, available: IntArray) -> IntArray:
        """Use the padding of a captured batch size: more drafts at no cost."""
        buckets = self._capability.token_buckets
        if not buckets or self._capability.level is Level.UNIFORM:
            return verify
        tokens = len(verify) + int(verify.sum())
        free = next((size for size in buckets if size >= tokens), tokens) - tokens
        if free <= 0:
            return verify
        can = np.flatnonzero(verify < available)
        chosen = self._random.permutation(can)[:free]
        filled = verify.copy()
        filled[chosen] += 1
        return filled
