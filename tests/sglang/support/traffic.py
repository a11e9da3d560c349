"""What the engines are asked."""

import random

from serving import Job

from tests.prompts import prompts


def mixed_lengths() -> list[Job]:
    """More requests than run at once, of many lengths, so that every batch size occurs."""
    chosen = random.Random(1)
    return [
        Job(f"mixed-{index}", prompt, {"max_new_tokens": chosen.randrange(2, 70)})
        for index, prompt in enumerate(prompts(20, 1))
    ]


def with_stops() -> list[Job]:
    """Ends by end-of-text and by a stop string, in the middle of accepted drafts."""
    options = {"ignore_eos": False, "stop": ["e", "\n"], "max_new_tokens": 60}
    return [Job(f"stop-{index}", text, options) for index, text in enumerate(prompts(6, 13))]


def long_ones() -> list[Job]:
    """Together more tokens than the KV pool has: requests are put back into the queue."""
    return [
        Job(f"long-{index}", text, {"max_new_tokens": 230 - 10 * index})
        for index, text in enumerate(prompts(8, 21))
    ]


def one_by_one() -> list[Job]:
    """What clients of a server ask for, each on its own."""
    texts = prompts(10, 41)
    return [Job(f"single-{i}", text, {"max_new_tokens": 40}) for i, text in enumerate(texts)]


SCENARIOS = {
    "mixed_lengths": mixed_lengths,
    "with_stops": with_stops,
    "long_ones": long_ones,
    "one_by_one": one_by_one,
}
