"""Prompt lookup: the tokens after the last earlier occurrence of a sequence's end."""

from __future__ import annotations

from collections.abc import Sequence


class SuffixIndex:
    """Index of the last occurrence of each short token run of one request."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Add the tokens since the last call.

        Args:
            tokens: the whole sequence so far.
        """
        known = len(self._tokens)
        self._tokens.extend(tokens[known:])
        # A run that ends at the last token has no continuation yet: it is entered next time.
        for end in range(max(known, 1), len(self._tokens)):
            for length in range(1, min(self._longest, end) + 1):
                self._after[tuple(self._tokens[end - length : end])] = end

    def propose(self, count: int) -> list[int]:
        """Return up to `count` tokens that followed the longest known run at the end."""
        size = len(self._tokens)
        for length in range(min(self._longest, size), 0, -1):
            start = self._after.get(tuple(self._tokens[size - length :]))
            if start is not None:
                return self._tokens[start : start + max(count, 0)]
        return []
