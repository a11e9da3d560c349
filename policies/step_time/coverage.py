"""Which K has been timed at which load, and which would be worth timing."""

from __future__ import annotations

import math

from adaptive_spec.step import Capability, StepOutcome

_BESIDE = 1.5
"""A K this near to the best one is beside it."""
_ENOUGH_COLD = 2
"""Loads that tell what a drafter's pass takes of its own, and by request."""
_MOSTLY_ONE = 0.75
"""Mean K from which a step counts as one of K = 1."""
_NEAR = 0.25
"""A mean K this near to a whole one is that K."""
_NEAR_TOP = 0.85
"""Share of Kmax from which a mean K counts as Kmax: requests near their end verify fewer drafts."""
_PROMPTS = 4
"""Most prompt tokens of a step that tells a K, over the tokens of its decoding requests. Where
outputs are short, nearly every step has as many prompt tokens as decoding requests."""


class TimedLoads:
    """Counts measured steps by load and mean K."""

    def __init__(self, capability: Capability) -> None:
        self._uniform = capability.uniform_values
        self._ladder = exploration_ladder(capability)
        self._by_bin: dict[tuple[int, int], int] = {}
        self._by_size: dict[tuple[int, int], int] = {}
        self._cold: set[int] = set()

    def count(self, outcome: StepOutcome, *, cold: bool = False) -> None:
        """A step was measured. One of prompts for the most part, or between two K, tells no K.

        `cold`: the drafter was left out.
        """
        if cold:
            self._cold.add(load_bin(outcome.batch_size))
        mean = outcome.batch_tokens / outcome.batch_size - 1.0
        depth, top = round(mean), self._ladder[-1]
        between = abs(mean - depth) > _NEAR if depth else mean > 0.0
        if between and mean >= _NEAR_TOP * top:
            depth, between = top, False
        if between or outcome.prefill_tokens > _PROMPTS * outcome.batch_tokens:
            return
        for counts, load in (
            (self._by_bin, load_bin(outcome.batch_size)),
            (self._by_size, near_bin(outcome.batch_size)),
        ):
            counts[load, depth] = counts.get((load, depth), 0) + 1

    def missing(self, batch_size: int, wanted: int) -> list[int]:
        """K of the ladder that steps of this load have not been timed with so often, ascending."""
        load = load_bin(batch_size)
        return [k for k in self._ladder if self._by_bin.get((load, k), 0) < wanted]

    def timed(self, batch_size: int, k: int) -> bool:
        """Steps of this load have been timed with this K."""
        return (load_bin(batch_size), k) in self._by_bin

    def timed_cold(self, batch_size: int) -> bool:
        """A step without the drafter has been timed at this load, or at enough others."""
        return load_bin(batch_size) in self._cold or len(self._cold) >= _ENOUGH_COLD

    def complete(self, wanted: int) -> int:
        """Loads that have been timed with every K of the ladder so often."""
        counts = self._by_bin
        loads = {load for load, _ in counts}
        return sum(all(counts.get((load, k), 0) >= wanted for k in self._ladder) for load in loads)

    def missing_beside(self, batch_size: int, k: float, wanted: int) -> list[int]:
        """K next to this mean K that batches of about this size lack, ascending."""
        load = near_bin(batch_size)
        return [
            beside
            for beside in self._uniform
            if abs(beside - k) <= _BESIDE and self._by_size.get((load, beside), 0) < wanted
        ]


def alike(outcome: StepOutcome, *, cold: bool) -> tuple[int, int, int, int]:
    """Return what steps have in common that are averaged: load, K, depth, size of the prompts.

    K is -1 without a single draft, and the depth -1 without the drafter (`cold`).
    """
    mean = outcome.batch_tokens / outcome.batch_size - 1.0
    # With those of half the requests, a few steps that verify a draft of each would not show.
    k = round(mean) if mean >= _MOSTLY_ONE else 0
    # Steps with a draft and without one are never alike, though both may be K = 0 on average.
    kind = k if outcome.batch_tokens > outcome.batch_size else -1
    depth = -1 if cold else outcome.draft_depth
    return load_bin(outcome.batch_size), kind, depth, outcome.prefill_tokens.bit_length()


def load_bin(batch_size: int) -> int:
    """Loads within a factor of two count as alike: 1, 2, 3-4, 5-8, ..."""
    return (batch_size - 1).bit_length()


def near_bin(batch_size: int) -> int:
    """Batch sizes within a factor of 1.4 have the same number."""
    return round(2.0 * math.log2(batch_size))


def exploration_ladder(capability: Capability) -> list[int]:
    """The K worth timing for every load: nothing, one, the middle and all."""
    kmax = capability.max_draft_tokens
    wanted = {0, 1, (kmax + 1) // 2, kmax}
    return [k for k in capability.uniform_values if k in wanted or capability.ladder]
