"""Act two: every arm does the same work, interleaved and repeated.

A cell is one arm at one concurrency in one repeat: a fixed list of requests, the same for all
arms. Arms follow one another within a repeat, in an order that rotates, so that a machine that
gets slower or faster meets all of them alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from benchmarks.bench_pair.prompts import Job

from .model import KINDS, jobs
from .servers import Server, alone
from .traffic import ACCEPTED_TOKENS, DRAFT_TOKENS, Client, serve_all

WARM_UP_SEED = 90
REPEAT_SEED = 100
WARM_UP_TOKENS, TOKENS = 24, 48


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        seconds: from the first request sent to the last answer received.
        tokens: emitted.
        requests: answered.
        drafted, accepted: draft tokens, by the engine's own counters.
        texts: a digest of each answer.
    """

    arm: str
    concurrency: int
    repeat: int
    seconds: float
    tokens: int
    requests: int
    drafted: int
    accepted: int
    texts: tuple[str, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        """Throughput of the cell."""
        return self.tokens / self.seconds

    @property
    def request_steps(self) -> int:
        """Steps times requests in them, prefill aside: each emits what it accepted and one more.

        Drafts that are accepted behind an answer's end are counted, too, so it is a little low.
        """
        return max(self.tokens - self.requests - self.accepted, 1)

    @property
    def accepted_per_step(self) -> float:
        """Accepted drafts per request and step: 1 more than that bounds any speed-up."""
        return self.accepted / self.request_steps


def requests_for(concurrency: int) -> int:
    """Work of some seconds: about two rounds, each kind of prompt equally often."""
    return len(KINDS) * max(round(2 * concurrency / len(KINDS)), 1)


def rotated(servers: Sequence[Server], by: int) -> list[Server]:
    """Begin with another one each time."""
    by %= len(servers)
    return [*servers[by:], *servers[:by]]


async def warm_up(
    servers: Sequence[Server],
    prompts: Mapping[str, Sequence[str]],
    concurrencies: Sequence[int],
    said: Callable[[str], None],
) -> None:
    """A discarded round for every arm."""
    for place, concurrency in enumerate(concurrencies):
        endless = jobs(prompts, WARM_UP_TOKENS, WARM_UP_SEED + place)
        todo = list(islice(endless, max(concurrency, len(KINDS))))
        for server in servers:
            async with alone(server, servers), Client(server.url) as client:
                await serve_all(client, todo, concurrency)
        said(f"warm-up at concurrency {concurrency}")


async def measure(
    servers: Sequence[Server],
    prompts: Mapping[str, Sequence[str]],
    concurrencies: Sequence[int],
    repeats: int,
    said: Callable[[str], None],
    time_for_another: Callable[[int], bool],
) -> list[Cell]:
    """Return all cells in the order that they were run.

    Before each repeat but the first `time_for_another` gets the number of those done; False ends
    the measurement.
    """
    cells: list[Cell] = []
    for repeat in range(repeats):
        if repeat and not time_for_another(repeat):
            break
        for place, concurrency in enumerate(concurrencies):
            seed = REPEAT_SEED + repeat * len(concurrencies) + place
            todo = list(islice(jobs(prompts, TOKENS, seed), requests_for(concurrency)))
            row = []
            for server in rotated(servers, repeat + place):
                row.append(await _cell(server, servers, todo, concurrency, repeat))
            cells += row
            rates = ", ".join(f"{c.arm} {c.tokens_per_second:.1f}" for c in row)
            said(f"repeat {repeat + 1} of {repeats}, concurrency {concurrency}, tokens/s: {rates}")
    return cells


async def _cell(
    server: Server, servers: Sequence[Server], todo: Sequence[Job], concurrency: int, repeat: int
) -> Cell:
    async with alone(server, servers), Client(server.url) as client:
        before = await client.counters()
        seconds, answers = await serve_all(client, todo, concurrency)
        after = await client.counters()
    drafted, accepted = (
        round(after[name] - before[name]) for name in (DRAFT_TOKENS, ACCEPTED_TOKENS)
    )
    return Cell(
        arm=server.arm.name,
        concurrency=concurrency,
        repeat=repeat,
        seconds=seconds,
        tokens=sum(answer.tokens for answer in answers),
        requests=len(todo),
        drafted=drafted,
        accepted=accepted,
        texts=tuple(hashlib.sha256(a.text.encode()).hexdigest()[:8] for a in answers),
    )
