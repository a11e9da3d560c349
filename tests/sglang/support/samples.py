"""Many short sampled completions, and whether two sets of them have one distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from serving import Job
from traffic import prompts

SAMPLES_PER_PROMPT = 512
PROMPTS = 3
RARE = 20
"""A value seen less often than this in both samples together is counted with the rare ones."""

Samples = list[list[list[int]]]


def sample(engine: Any) -> Samples:
    """Completions of each prompt at temperature 0.8."""
    options = {"temperature": 0.8, "max_new_tokens": 5}
    jobs = [
        Job(f"sample-{index}-{turn}", text, options)
        for turn in range(SAMPLES_PER_PROMPT)
        for index, text in enumerate(prompts(PROMPTS, 31))
    ]
    drawn: Samples = [[] for _ in range(PROMPTS)]
    for name, answer in engine.run(jobs).items():
        drawn[int(name.split("-")[1])].append(answer.tokens)
    return drawn


def p_values(one: Samples, other: Samples) -> list[float]:
    """For each prompt: the pair of second and third token, and the fourth token.

    The first token comes from the prompt's own pass; speculation can bias the ones after it.
    """
    return [
        p_value(
            Counter(tuple(tokens[low:high]) for tokens in ours),
            Counter(tuple(tokens[low:high]) for tokens in theirs),
        )
        for ours, theirs in zip(one, other, strict=True)
        for low, high in ((1, 3), (3, 4))
    ]


def p_value(one: Counter[Any], other: Counter[Any]) -> float:
    """Chi-square test of homogeneity of two samples."""
    from scipy.stats import chi2_contingency

    columns: dict[Hashable, list[int]] = {}
    for value in {*one, *other}:
        key = value if one[value] + other[value] >= RARE else "rare"
        column = columns.setdefault(key, [0, 0])
        column[0] += one[value]
        column[1] += other[value]
    if len(columns) < 2:
        return 1.0
    return float(chi2_contingency(list(zip(*columns.values(), strict=True))).pvalue)
