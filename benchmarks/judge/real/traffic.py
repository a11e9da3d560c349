"""Requests to an engine: clients in a closed loop, or a number that changes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from benchmarks.bench_pair.prompts import CPU_CHARACTERS, Job, endless_jobs, load_prompts

from ..arms import Arm
from ..clock import Recorder
from ..device import Device
from ..traffic import SPREAD

PAUSE_SECONDS = 1.0
"""Virtual time between two loads, so that the adapter sees an idle engine."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load: requests, prompts and lengths.

    Attributes:
        name: in results; of a closed loop, the number of clients.
        pieces: (clients, requests): so many clients until so many requests more were sent. A
            client sends its next request when its last one is answered.
        temperature: of sampling.
        tokens: of each answer; the mean where they are uneven.
        uneven: lengths are log-normal, up to three times the mean: V1's runner drafts for nobody
            while one request is near the end of its context.
        seed: draws the order of the prompts.
        distinct: prompts, which are asked over and over; 0: as many as requests.
        characters: that prompts are cut to; None: whole ones.
    """

    name: str
    pieces: tuple[tuple[int, int], ...]
    temperature: float = 0.0
    tokens: int = 64
    seed: int = 7
    distinct: int = 0
    uneven: bool = False
    characters: int | None = CPU_CHARACTERS

    @property
    def requests(self) -> int:
        """Requests in all."""
        return sum(requests for _, requests in self.pieces)

    @property
    def most_clients(self) -> int:
        """The largest number of clients."""
        return max(clients for clients, _ in self.pieces)

    def clients_after(self, sent: int) -> int:
        """The number of clients once so many requests were sent."""
        ends = itertools.accumulate(requests for _, requests in self.pieces)
        pairs = zip(self.pieces, ends, strict=True)
        return next((clients for (clients, _), end in pairs if sent < end), self.pieces[-1][0])

    def jobs(self) -> Iterator[Job]:
        """Endless requests: `distinct` prompts, over and over.

        The first ones are shorter, so that they do not end together.
        """
        count = self.distinct or self.requests
        endless = endless_jobs(load_prompts(), self.tokens, self.seed, self.characters)
        asked = list(itertools.islice(endless, count))
        first = self.pieces[0][0]
        drawn = random.Random(self.seed)
        for place, job in enumerate(itertools.cycle(asked)):
            tokens = job.max_tokens
            if self.uneven:
                length = drawn.lognormvariate(math.log(self.tokens) - SPREAD**2 / 2, SPREAD)
                tokens = min(max(round(length), 4), 3 * self.tokens)
            elif place < first:
                tokens = max(tokens * (place + 1) // first, 1)
            yield Job(job.kind, place, job.prompt, tokens)


class Answer(NamedTuple):
    """Tokens that a step emitted for a request."""

    number: int
    tokens: list[int]
    finished: bool


class Answering(Protocol):
    """An engine in this process, as the traffic sees it."""

    @property
    def recorder(self) -> Recorder:
        """Return what it ran."""
        ...

    def submit(self, job: Job, temperature: float) -> None:
        """Send a request; `job.number` names it."""
        ...

    def step(self) -> Iterable[Answer]:
        """Let the engine do one step, or take up one result."""
        ...

    def drain(self) -> None:
        """Finish the steps under way after the last answer has ended."""
        ...


class Engine(Answering, Protocol):
    """The same, as a run sees it."""

    def use(self, arm: Arm, device: Device) -> None:
        """Let an arm decide on a device, with everything as at a server's start."""
        ...

    def status(self) -> dict[str, Any]:
        """Our plugin's counters; empty without it."""
        ...

    def tokens_of(self, prompts: list[str]) -> list[list[int]]:
        """Return the tokens of prompts."""
        ...

    def close(self) -> None:
        """Shut down in order."""
        ...


def serve(engine: Answering, load: Load, least_steps: int = 0) -> list[list[int]]:
    """Have a load answered; the tokens of each answer, in the order of requests.

    Args:
        engine: idle.
        load: to be answered.
        least_steps: go on with the same prompts until so many steps have completed.
    """
    recorder = engine.recorder
    recorder.clock.advance(PAUSE_SECONDS)
    jobs = load.jobs()
    live: set[int] = set()
    answers: dict[int, list[int]] = {}
    sent, total = 0, load.requests

    def send() -> None:
        nonlocal sent
        job = next(jobs)
        live.add(job.number)
        answers[job.number] = []
        engine.submit(job, load.temperature)
        sent += 1

    while True:
        if len(recorder.completed) < least_steps:
            total = max(total, sent + load.most_clients)
        elif least_steps:
            total = max(load.requests, min(total, sent))
        while sent < total and len(live) < load.clients_after(sent):
            send()
        if not live:
            engine.drain()
            return [answers[number] for number in sorted(answers)]
        for number, tokens, finished in engine.step():
            answers[number] += tokens
            if finished:
                live.discard(number)
