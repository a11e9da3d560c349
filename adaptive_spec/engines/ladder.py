"""Rounding of K to a ladder: the ascending K values that an engine can run."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence


def round_down(k: int, ladder: Sequence[int]) -> int:
    """Return the largest value of the ladder that is not above `k`, else its smallest."""
    return ladder[max(bisect_right(ladder, k) - 1, 0)]


def round_up(k: int, ladder: Sequence[int]) -> int:
    """Return the smallest value of the ladder that is not below `k`, else its largest."""
    return ladder[min(bisect_left(ladder, k), len(ladder) - 1)]
