"""HTTP requests to a server, in closed loops: as one is answered, the next is sent."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from .arms import MODEL_NAME
from .errors import DemoError

TEMPERATURE = 0.8
PROMPT_CHARACTERS = 60
"""Prompts are cut to some twenty tokens: on a CPU a prompt token costs as much as any other."""
REQUEST_SECONDS = 180.0

DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
DRAFTS = "vllm:spec_decode_num_drafts_total"
ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"


@dataclass(frozen=True)
class Job:
    """One request. Its name begins with the kind of its prompt."""

    kind: str
    number: int
    prompt: str
    max_tokens: int

    @property
    def request_id(self) -> str:
        """Sent as X-Request-Id, so that step traces tell kinds apart."""
        return f"{self.kind}-{self.number}"

    def body(self) -> dict[str, Any]:
        """What is posted. No early end, so that work is the same for every server."""
        return {
            "model": MODEL_NAME,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": TEMPERATURE,
            "seed": self.number,
            "ignore_eos": True,
        }


def endless_jobs(prompts: Mapping[str, Sequence[str]], max_tokens: int, seed: int) -> Iterator[Job]:
    """Jobs of all kinds in turn, with prompts in an order drawn by `seed`."""
    chance = random.Random(seed)
    shuffled = {kind: chance.sample(texts, len(texts)) for kind, texts in prompts.items()}
    number = itertools.count(1_000_000 * (seed + 1))
    for place in itertools.count():
        kinds = chance.sample(sorted(shuffled), len(shuffled))
        for kind in kinds:
            texts = shuffled[kind]
            text = texts[place % len(texts)][:PROMPT_CHARACTERS]
            yield Job(kind, next(number), text, max_tokens)


def jobs(prompts: Mapping[str, Sequence[str]], count: int, max_tokens: int, seed: int) -> list[Job]:
    """The first `count` of `endless_jobs`."""
    return list(itertools.islice(endless_jobs(prompts, max_tokens, seed), count))


def kind_of(request_id: str) -> str:
    """The kind of prompt of a request, from its id inside the server; empty if unknown."""
    match = re.match(r"cmpl-([a-z]+)-\d+-", request_id)
    return match[1] if match else ""


class Client:
    """Talks to one server. A fresh one per measurement: paused servers drop connections."""

    def __init__(self, url: str) -> None:
        limits = httpx.Limits(max_connections=64)
        self._http = httpx.AsyncClient(base_url=url, timeout=REQUEST_SECONDS, limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def complete(self, job: Job) -> int:
        """Send one request; the tokens it got.

        Raises DemoError if it isn't answered in full.
        """
        headers = {"X-Request-Id": job.request_id}
        try:
            response = await self._http.post("/v1/completions", json=job.body(), headers=headers)
        except httpx.HTTPError as error:
            raise DemoError(f"request {job.request_id} failed: {error!r}") from error
        if response.status_code != httpx.codes.OK:
            text = " ".join(response.text.split())[:200]
            raise DemoError(f"request {job.request_id}: status {response.status_code}: {text}")
        tokens = int(response.json()["usage"]["completion_tokens"])
        if tokens != job.max_tokens:
            raise DemoError(f"request {job.request_id} got {tokens} tokens of {job.max_tokens}")
        return tokens

    async def counters(self) -> dict[str, float]:
        """The engine's own counters of drafts and their tokens; 0 where it has none."""
        try:
            response = await self._http.get("/metrics")
        except httpx.HTTPError as error:
            raise DemoError(f"/metrics is not answered: {error!r}") from error
        return counters_in(response.text)


def counters_in(metrics: str) -> dict[str, float]:
    """Sums over labels of the counters we use, out of a Prometheus text."""
    totals = dict.fromkeys((DRAFTS, DRAFT_TOKENS, ACCEPTED_TOKENS), 0.0)
    for line in metrics.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in totals:
            totals[name] += float(line.rsplit(" ", 1)[1])
    return totals


async def serve_all(client: Client, work: Iterable[Job], concurrency: int) -> float:
    """Have a fixed amount of work done at a concurrency; seconds from first to last."""
    queue = iter(work)

    async def work_off() -> None:
        for job in queue:
            await client.complete(job)

    began = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work_off())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return time.perf_counter() - began


class ClosedLoop:
    """Keeps a number of requests under way that may be changed while it runs."""

    def __init__(self, client: Client, work: Iterator[Job]) -> None:
        self._client = client
        self._work = work
        self._wanted = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        self.answered = 0

    def set_concurrency(self, wanted: int) -> None:
        """More start at once; fewer: the surplus ends as it is answered."""
        self._wanted = wanted
        for place in range(wanted):
            task = self._running.get(place)
            if task is None or task.done():
                self._running[place] = asyncio.create_task(self._keep_sending(place))

    def raise_failure(self) -> None:
        """Raise what has ended one of the senders, if something has."""
        for task in self._running.values():
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    async def drain(self) -> None:
        """Wait for the answers under way; send nothing more."""
        self._wanted = 0
        await asyncio.gather(*self._running.values())

    async def cancel(self) -> None:
        """Give up all that is under way."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _keep_sending(self, place: int) -> None:
        while place < self._wanted:
            await self._client.complete(next(self._work))
            self.answered += 1
