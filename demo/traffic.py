"""Chats with a server over HTTP, in closed loops: as one is answered, the next is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx

from benchmarks.bench_pair.prompts import Job

from .errors import DemoError
from .model import FOLDER

REQUEST_SECONDS = 180.0


@dataclass
class Answer:
    """A request and what has come of it.

    Attributes:
        place: which of the clients that run at once has sent it.
        pieces: texts as they came, with the tokens of each: of one step, or more where steps are
            faster than they are read.
        finished: it is whole.
    """

    job: Job
    place: int = 0
    pieces: list[tuple[str, int]] = field(default_factory=list)
    finished: bool = False

    @property
    def text(self) -> str:
        """All of it until now."""
        return "".join(text for text, _ in self.pieces)

    @property
    def tokens(self) -> int:
        """Tokens until now."""
        return sum(tokens for _, tokens in self.pieces)


def request_id(job: Job) -> str:
    """Sent as X-Request-Id, so that step traces tell kinds of prompts apart."""
    return f"{job.kind}-{job.number}"


def body(job: Job) -> dict[str, Any]:
    """Return the JSON that is posted; greedy."""
    return {
        "model": FOLDER,
        "messages": [{"role": "user", "content": job.prompt}],
        "max_tokens": job.max_tokens,
        "temperature": 0.0,
        "stream": True,
        "return_token_ids": True,
    }


class Client:
    """Talks to the server."""

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

    async def complete(self, answer: Answer) -> None:
        """Send a request and take its answer as it comes.

        Raises DemoError if it isn't answered in full.
        """
        name = request_id(answer.job)
        headers = {"X-Request-Id": name}
        asked = {"json": body(answer.job), "headers": headers}
        try:
            async with self._http.stream("POST", "/v1/chat/completions", **asked) as response:
                if response.status_code != httpx.codes.OK:
                    text = " ".join((await response.aread()).decode(errors="replace").split())[:200]
                    raise DemoError(f"request {name}: status {response.status_code}: {text}")
                async for line in response.aiter_lines():
                    append_line(answer, line)
        except httpx.HTTPError as error:
            raise DemoError(f"request {name} failed: {error!r}") from error
        if not answer.finished:
            raise DemoError(f"request {name} ended after {answer.tokens} tokens")


def append_line(answer: Answer, line: str) -> None:
    """Add what a line of a stream of server-sent events brings."""
    data = line.removeprefix("data: ")
    if not data.startswith("{"):
        return
    for choice in json.loads(data).get("choices", ()):
        if tokens := len(choice.get("token_ids") or ()):
            answer.pieces.append((choice["delta"].get("content") or "", tokens))
        answer.finished = answer.finished or choice.get("finish_reason") is not None


class ClosedLoop:
    """Keeps a number of requests under way that may be changed while it runs.

    Attributes:
        answers: all that were begun, in this order.
    """

    def __init__(self, client: Client, work: Iterator[Job]) -> None:
        self.answers: list[Answer] = []
        self._client = client
        self._work = work
        self._wanted = 0
        self._running: dict[int, asyncio.Task[None]] = {}

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
        while place < self._wanted and (job := next(self._work, None)) is not None:
            self.answers.append(Answer(job, place))
            await self._client.complete(self.answers[-1])
