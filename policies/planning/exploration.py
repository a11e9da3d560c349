"""Requests drawn at random: for a trial of acceptance, for a probe, and to fill padding.

Requests are drawn independently of anything about their drafts, and the probability of what was
drawn is returned as a propensity.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import Capability, FloatArray, IntArray, Level

FRACTION = 1.0 / 8.0
"""Share of the requests that verify one draft more in a trial of acceptance."""
# The first draft of a step is dear, the others are cheap.
FRACTION_OF_NONE = 1.0 / 2.0
"""That share where no request speculates."""


class Explorer:
    """Draws requests that verify other drafts than the planner wants.

    Args:
        capability: of the engine.
        seed: of the draws.
    """

    def __init__(self, capability: Capability, seed: int) -> None:
        self._capability = capability
        self._random = np.random.default_rng(seed)

    def deeper(self, depth: int) -> int:
        """The next depth the engine can run."""
        above = [k for k in self._capability.uniform_values if k > depth]
        return above[0] if above else depth

    def extend(
        self, verify: IntArray, available: IntArray, fraction: float = FRACTION
    ) -> tuple[IntArray, FloatArray]:
        """Add a draft for a random fraction of the requests; return K_i and propensities [B]."""
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
