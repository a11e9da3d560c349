"""Chi-square test of homogeneity: are samples, taken two by two, from one distribution each?"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

Pair = tuple[Counter[Any], Counter[Any]]


def p_value(pairs: Iterable[Pair], rare: int = 20) -> float:
    """Return the chance of differences at least as large if each pair has one distribution.

    The statistics of independent pairs add up, and so do their degrees of freedom: a bias that all
    pairs share is noticed with all their samples.

    Args:
        pairs: how often each value was seen in either sample.
        rare: values seen less often in both samples together are counted as one.
    """
    statistic, freedom = 0.0, 0
    for samples in pairs:
        columns: dict[Hashable, list[int]] = {}
        for value in {*samples[0], *samples[1]}:
            key = value if samples[0][value] + samples[1][value] >= rare else "rare"
            column = columns.setdefault(key, [0, 0])
            for side, sample in enumerate(samples):
                column[side] += sample[value]
        sizes = [sample.total() for sample in samples]
        for column in columns.values():
            for seen, size in zip(column, sizes, strict=True):
                expected = sum(column) * size / sum(sizes)
                statistic += (seen - expected) ** 2 / expected
        freedom += max(len(columns) - 1, 0)
    return tail(statistic, freedom) if freedom else 1.0


def tail(statistic: float, freedom: int) -> float:
    """Return the upper tail of chi-square, by Wilson and Hilferty's cube root (1931)."""
    spread = 2.0 / (9.0 * freedom)
    deviate = ((statistic / freedom) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(deviate / math.sqrt(2.0))
