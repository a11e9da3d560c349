"""Greedy answers, and how far each of their tokens is from the target's own choice.

In bf16 a batch of another shape rounds logits otherwise, so two correct servers may part at a
near-tie and never meet again. The second figure settles whether they did: the target alone scores
every token of an answer, and an emitted token that lies far below the best one is an error.
"""

from __future__ import annotations

import itertools
from typing import Any

from ..real.traffic import Load
from ..real.traffic import serve as answers_to
from .engine import Engine

Pair = tuple[list[int], list[int]]
"""Token ids of a prompt and of its answer."""


def answers(engine: Engine, load: Load) -> list[Pair]:
    """The answers to all requests of a load."""
    found = answers_to(engine, load)
    prompts = [job.prompt for job in itertools.islice(load.jobs(), len(found))]
    return list(zip(engine.tokens_of(prompts), found, strict=True))


def gaps(engine: Engine, pairs: list[Pair], clients: int) -> list[float]:
    """For each answer the largest gap in nats between the target's best token and the emitted one.

    0 means that every token is the target's own choice.
    """
    waiting = list(enumerate(pairs))
    place_of: dict[str, int] = {}
    found = [0.0] * len(pairs)
    while waiting or engine.live:
        while waiting and len(engine.live) < clients:
            place, (prompt, answer) = waiting.pop(0)
            name = engine.send(
                "score", prompt + answer, max_tokens=1, temperature=0.0, prompt_logprobs=1
            )
            place_of[name] = place
        for output in engine.outputs():
            if output.prompt_logprobs:
                place = place_of[output.request_id]
                found[place] = _largest(output.prompt_logprobs, *pairs[place])
    return found


def _largest(logprobs: list[Any], prompt: list[int], answer: list[int]) -> float:
    rows = logprobs[len(prompt) : len(prompt) + len(answer)]
    return max(
        float(max(each.logprob for each in row.values()) - row[token].logprob)
        for row, token in zip(rows, answer, strict=True)
    )


def agreement(wanted: list[Pair], found: list[Pair]) -> dict[str, int]:
    """Answers and tokens that equal the wanted ones; tokens up to the first difference."""
    pairs = [(a, b) for (_, a), (_, b) in zip(wanted, found, strict=True)]
    same = [
        next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        for a, b in pairs
    ]
    return {
        "answers": len(pairs),
        "identical": sum(a == b for a, b in pairs),
        "tokens": sum(len(a) for a, _ in pairs),
        "tokens_before_first_difference": sum(same),
    }
