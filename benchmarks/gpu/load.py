"""Requests of a closed loop of clients, and the count of what they received."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import msgspec

from benchmarks.bench_pair.names import KINDS
from benchmarks.bench_pair.prompts import load_prompts

MIXED = "mixed"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of a closed loop of clients.

    Attributes:
        clients: requests under way; each client sends its next request when its last is answered.
        temperature: of sampling.
        seed: draws the order of the prompts.
        seconds: least measured time. The cell ends with the answer that completes a cycle of kinds.
        settle_seconds: time before that, not counted.
        output_tokens: length of an answer.
        kind: `mixed`, or the only kind of prompt.
    """

    clients: int
    temperature: float
    seed: int
    seconds: float
    settle_seconds: float = 1.0
    output_tokens: int = 96
    kind: str = MIXED

    @property
    def cycle(self) -> int:
        """Requests after which each kind has had its turn."""
        return len(KINDS) if self.kind == MIXED else 1

    def prompts(self) -> Iterator[tuple[str, str]]:
        """Kind and text of endless prompts; mixed kinds take turns."""
        texts = load_prompts()
        if self.kind != MIXED:
            texts = {self.kind: texts[self.kind]}
        chance = random.Random(self.seed)
        shuffled = {kind: chance.sample(some, len(some)) for kind, some in sorted(texts.items())}
        for place in itertools.count():
            for kind in chance.sample(sorted(shuffled), len(shuffled)):
                some = shuffled[kind]
                yield kind, some[place % len(some)]

    def first_length(self, place: int) -> int:
        """Output tokens of a client's first request, staggered so that answers don't coincide."""
        return max(self.output_tokens * (place + 1) // self.clients, 1)


class Tally:
    """Tokens and requests counted from the engine's answers.

    Attributes:
        by_kind: decoding steps of requests and accepted drafts, by kind of prompt.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.finished = 0
        self.by_kind: dict[str, list[int]] = {}

    def count(self, kind: str, emitted: int, *, first: bool, finished: bool) -> None:
        """Add one request's part of a step. The first part is the prompt's: no draft verified."""
        self.tokens += emitted
        self.finished += finished
        if not first:
            row = self.by_kind.setdefault(kind, [0, 0])
            row[0] += 1
            row[1] += emitted - 1
