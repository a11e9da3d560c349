"""Many short sampled completions of a few prompts, to compare distributions by."""

from typing import Any

from engines import Job
from scenarios import prompts

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
