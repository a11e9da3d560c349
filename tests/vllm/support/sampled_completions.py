"""Many short sampled completions of a few prompts, to compare distributions by."""

from collections import Counter
from typing import Any

from engines import Job
from scenarios import prompts

from tests.chi_square import p_value

LARGEST_BATCH = 48
ENGINE = {
    "max_num_seqs": LARGEST_BATCH,
    "max_num_batched_tokens": 1024,
    "num_gpu_blocks_override": 400,
}
"""Options of an engine that takes such a batch."""


def sample(
    engine: Any, samples_per_prompt: int, prompt_count: int = 4
) -> list[list[tuple[int, ...]]]:
    """Six tokens of each sample at temperature 0.8, by prompt."""
    options = {"temperature": 0.8, "max_tokens": 6, "n": LARGEST_BATCH, "detokenize": False}
    texts = prompts(prompt_count, 31)
    jobs = [
        Job(f"{index}-{turn}", text, 0, options)
        for turn in range(samples_per_prompt // LARGEST_BATCH)
        for index, text in enumerate(texts)
    ]
    drawn: list[list[tuple[int, ...]]] = [[] for _ in texts]
    for name, answer in engine.run(jobs).items():
        drawn[int(name.partition("-")[0])] += answer.tokens
    return drawn


def check_alike(
    speculated: list[list[tuple[int, ...]]], unspeculated: list[list[tuple[int, ...]]]
) -> None:
    """Compare completions by prompt: the pair of second and third token, and the fourth."""
    values = [
        p_value([tuple(Counter(each[low:high] for each in drawn) for drawn in both)])
        for both in zip(speculated, unspeculated, strict=True)
        for low, high in ((1, 3), (3, 4))
    ]
    # One false alarm in a thousand runs, however many comparisons there are.
    assert min(values) > 1e-3 / len(values), values
