"""The committed prompts, and endless requests made of them."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .names import PROMPTS

CPU_CHARACTERS = 60
"""Prompts are cut to some twenty tokens: on a CPU a prompt token costs as much as any other."""


class Job(NamedTuple):
    """One request."""

    kind: str
    number: int
    prompt: str
    max_tokens: int


def load_prompts() -> dict[str, list[str]]:
    """Held-out prompts of about 64 tokens, by kind of text."""
    prompts: dict[str, list[str]] = json.loads(PROMPTS.read_text(encoding="utf-8"))
    return prompts


def endless_jobs(
    prompts: Mapping[str, Sequence[str]],
    max_tokens: int,
    seed: int,
    characters: int | None = CPU_CHARACTERS,
) -> Iterator[Job]:
    """Jobs of all kinds in turn, with prompts in an order drawn by `seed`, cut to `characters`."""
    chance = random.Random(seed)
    shuffled = {kind: chance.sample(texts, len(texts)) for kind, texts in prompts.items()}
    number = itertools.count(1_000_000 * (seed + 1))
    for place in itertools.count():
        for kind in chance.sample(sorted(shuffled), len(shuffled)):
            texts = shuffled[kind]
            yield Job(kind, next(number), texts[place % len(texts)][:characters], max_tokens)
