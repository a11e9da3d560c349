"""Which K has been timed at which load."""

from __future__ import annotations

from adaptive_spec.step import Capability, StepOutcome

_ENOUGH_COLD = 2
"""Loads that tell what a drafter's pass takes of its own, and by request."""
_NEAR = 0.25
"""A mean K this near to a whole one is that K."""
# Requests near their end verify fewer drafts.
_NEAR_TOP = 0.85
"""Share of Kmax from which a mean K counts as Kmax."""
# Where outputs are short, nearly every step has as many prompt tokens as decoding requests.
_PROMPTS = 4
"""Most prompt tokens per token of decoding requests in a step that times a K."""


class TimedLoads:
    """Counts measured steps by load and mean K."""

    def __init__(self, capability: Capability) -> None:
        self._ladder = exploration_ladder(capability)
        self._by_bin: dict[tuple[int, int], int] = {}
        self._cold: set[int] = set()

    def count(self, outcome: StepOutcome, *, cold: bool = False) -> None:
        """Count a measured step; steps mostly of prompts, or between two K, count for no K.

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
        kind = load_bin(outcome.batch_size), depth
        self._by_bin[kind] = self._by_bin.get(kind, 0) + 1

    def missing(self, batch_size: int, wanted: int) -> list[int]:
        """K of the ladder that steps of this load have not been timed with so often, ascending."""
        load = load_bin(batch_size)
        return [k for k in self._ladder if self._by_bin.get((load, k), 0) < wanted]

    def timed_cold(self, batch_size: int) -> bool:
        """A step without the drafter has been timed at this load, or at enough others."""
        return load_bin(batch_size) in self._cold or len(self._cold) >= _ENOUGH_COLD

    def complete(self, wanted: int) -> int:
        """Loads that have been timed with every K of the ladder so often."""
        counts = self._by_bin
        loads = {load for load, _ in counts}
        return sum(all(counts.get((load, k), 0) >= wanted for k in self._ladder) for load in loads)


def load_bin(batch_size: int) -> int:
    """Loads within a factor of two count as alike: 1, 2, 3-4, 5-8, ..."""
    return (batch_size - 1).bit_length()


def exploration_ladder(capability: Capability) -> list[int]:
    """The K worth timing for every load: nothing, one, the middle and all."""
    kmax = capability.max_draft_tokens
    wanted = {0, 1, (kmax + 1) // 2, kmax}
    return [k for k in capability.uniform_values if k in wanted or capability.ladder]
