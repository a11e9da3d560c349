"""Fixed time of a batch of prompts, where an engine runs prompts in steps of their own."""

from __future__ import annotations

_LEAST_BATCHES = 4.0
"""Batches from which their fixed time is known."""
_LEAST_SPREAD = 0.05
"""Least relative variance of their tokens that separates the fixed time from the rest."""


class PromptBatches:
    """Sums over batches of prompts; a batch of t tokens takes a + b t seconds."""

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)
        """Number, tokens, seconds, tokens squared, tokens times seconds."""

    def add(self, tokens: int, seconds: float) -> None:
        """Add a batch."""
        new = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
        self._sums = tuple(a + b for a, b in zip(self._sums, new, strict=True))

    def fade(self, kept: float) -> None:
        """Let the batches so far count for this share."""
        self._sums = tuple(kept * each for each in self._sums)

    @property
    def fixed_seconds(self) -> float:
        """a, by least squares (seconds); 0 where unknown."""
        count, tokens, seconds, squares, products = self._sums
        variance = count * squares - tokens * tokens
        if count < _LEAST_BATCHES or variance <= _LEAST_SPREAD * tokens * tokens:
            return 0.0
        slope = max((count * products - tokens * seconds) / variance, 0.0)
        return min(max((seconds - slope * tokens) / count, 0.0), seconds / count)
