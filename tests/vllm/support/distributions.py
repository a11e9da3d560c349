"""Are two samples of completions from one distribution?"""

import math
from collections import Counter
from collections.abc import Hashable
from typing import Any


def check_alike(
    speculated: list[list[tuple[int, ...]]], unspeculated: list[list[tuple[int, ...]]]
) -> None:
    values = []
    for ours, plain in zip(speculated, unspeculated, strict=True):
        for low, high in ((1, 3), (3, 4)):
            values.append(
                p_value(
                    Counter(tokens[low:high] for tokens in ours),
                    Counter(tokens[low:high] for tokens in plain),
                )
            )
    # One false alarm in a thousand runs, however many comparisons there are.
    assert min(values) > 1e-3 / len(values), values


def p_value(one: Counter[Any], other: Counter[Any], smallest: int = 10) -> float:
    """Chi-square test of homogeneity of two samples; rare values are pooled."""
    pooled: Counter[Hashable] = Counter()
    columns: dict[Hashable, list[int]] = {}
    for value in {*one, *other}:
        total = one[value] + other[value]
        pooled[value if total >= 2 * smallest else "rare"] += total
        key: Hashable = value if total >= 2 * smallest else "rare"
        column = columns.setdefault(key, [0, 0])
        column[0] += one[value]
        column[1] += other[value]
    sizes = (sum(one.values()), sum(other.values()))
    total = sum(sizes)
    statistic = 0.0
    for column in columns.values():
        for seen, size in zip(column, sizes, strict=True):
            expected = sum(column) * size / total
            statistic += (seen - expected) ** 2 / expected
    freedom = len(columns) - 1
    if freedom < 1:
        return 1.0
    # Wilson and Hilferty: the cube root of chi-square over its freedom is nearly normal.
    spread = 2 / (9 * freedom)
    deviate = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(deviate / math.sqrt(2))
