"""Many short sampled completions, and whether two sets of them have one distribution."""

from collections import Counter
from typing import Any

from serving import Job
from traffic import prompts

from tests.chi_square import p_value

SAMPLES_PER_PROMPT = 256
PROMPTS = 3
TOKENS = 5
COMPARISONS = 2
"""Of two sets of completions; see `p_values`."""
LEVEL = 1e-3 / COMPARISONS
"""One false alarm in a thousand runs of a test of sampled output."""
_AT_ONCE = 768
"""Requests handed over at once: SGLang looks through its whole queue in each step."""

Samples = list[list[list[int]]]


def sample(engine: Any, each: int = SAMPLES_PER_PROMPT) -> Samples:
    """Completions of each prompt, so many, at temperature 0.8."""
    options = {"temperature": 0.8, "max_new_tokens": TOKENS}
    jobs = [
        Job(f"sample-{index}-{turn}", text, options)
        for turn in range(each)
        for index, text in enumerate(prompts(PROMPTS, 31))
    ]
    drawn: Samples = [[] for _ in range(PROMPTS)]
    for start in range(0, len(jobs), _AT_ONCE):
        for name, answer in engine.run(jobs[start : start + _AT_ONCE]).items():
            drawn[int(name.split("-")[1])].append(answer.tokens)
    return drawn


def p_values(one: Samples, other: Samples) -> list[float]:
    """For all prompts together: the pair of second and third token, and the fourth token.

    The first token comes from the prompt's own pass; speculation can bias the ones after it.
    """
    return [
        p_value(
            [
                (
                    Counter(tuple(tokens[low:high]) for tokens in ours),
                    Counter(tuple(tokens[low:high]) for tokens in theirs),
                )
                for ours, theirs in zip(one, other, strict=True)
            ]
        )
        for low, high in ((1, 3), (3, 4))
    ]
