import asyncio
import json
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from benchmarks.bench_pair.prompts import Job
from demo import model
from demo.errors import DemoError
from demo.server import free_port
from demo.traffic import Answer, Client, ClosedLoop


def jobs(count: int, tokens: int, seed: int) -> list[Job]:
    return list(islice(model.jobs(PROMPTS, tokens, seed), count))


PROMPTS = {kind: [f"{kind} {n}" * 20 for n in range(4)] for kind in ("code", "json", "log")}


class FakeClient:
    """Answers after two turns of the event loop; fails on request."""

    def __init__(self, failing: int | None = None) -> None:
        self.done: list[Job] = []
        self.under_way = self.most = 0
        self._failing = failing

    async def complete(self, answer: Answer) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.under_way -= 1
        if len(self.done) == self._failing:
            raise DemoError("no answer")
        self.done.append(answer.job)


def test_jobs_are_drawn_by_seed_and_all_kinds_are_alike() -> None:
    first, again, other = (jobs(12, 32, seed) for seed in (1, 1, 2))
    assert first == again
    assert [job.prompt for job in first] != [job.prompt for job in other]
    assert not {job.number for job in first} & {job.number for job in other}
    assert set(Counter(job.kind for job in first).values()) == {4}
    assert {job.prompt for job in first} == {text for some in PROMPTS.values() for text in some}


def test_the_demo_asks_short_instructions_of_every_kind() -> None:
    prompts = model.load_prompts()
    assert tuple(prompts) == model.KINDS
    for texts in prompts.values():
        assert len(set(texts)) == model.SHORTEST
        assert max(map(len, texts)) < 900  # with the answer within the server's 1,024 tokens


def chunk(text: str, tokens: int, end: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "token_ids": [7] * tokens}
    return f"data: {json.dumps({'choices': [choice | {'finish_reason': end}]})}\n\n"


FIRST = 'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
"""Before the first token, as vLLM 0.32 sends it."""


async def answered(status: str, content: str) -> tuple[Answer, bytes]:
    """Return what a client makes of a server's response, and what it has posted."""
    port = free_port()
    posted = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        posted.append(head + await reader.readexactly(size))
        writer.write(f"HTTP/1.0 {status}\r\n\r\n{content}".encode())
        await writer.drain()
        writer.close()

    answer = Answer(Job("edit", 3, "Rename x.", 9))
    server = await asyncio.start_server(respond, "127.0.0.1", port)
    async with server, Client(f"http://127.0.0.1:{port}") as client:
        await client.complete(answer)
    return answer, posted[0]


def test_an_answer_comes_in_pieces_of_one_step_each() -> None:
    stream = FIRST + chunk("def", 1) + chunk(" add(a, b):", 6) + chunk("", 1, "stop")
    answer, posted = asyncio.run(answered("200 OK", stream + "data: [DONE]\n\n"))
    assert answer.pieces == [("def", 1), (" add(a, b):", 6), ("", 1)]
    assert (answer.text, answer.tokens, answer.finished) == ("def add(a, b):", 8, True)
    head, _, content = posted.partition(b"\r\n\r\n")
    assert b"edit-3" in head
    body = json.loads(content)
    assert body["messages"] == [{"role": "user", "content": "Rename x."}]
    assert (body["temperature"], body["max_tokens"]) == (0.0, 9)


@pytest.mark.parametrize(
    ("status", "content", "told"),
    [
        ("200 OK", FIRST + chunk("def", 1), "edit-3 ended after 1 tokens"),
        ("400 Bad Request", "too\n long", "status 400: too long"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(status: str, content: str, told: str) -> None:
    with pytest.raises(DemoError, match=told):
        asyncio.run(answered(status, content))


def test_a_failed_request_ends_the_load_with_its_own_error() -> None:
    async def scenario() -> None:
        loop = ClosedLoop(FakeClient(failing=3), model.jobs(PROMPTS, 8, 0))
        loop.set_concurrency(4)
        try:
            for _ in range(20):
                await asyncio.sleep(0)
                loop.raise_failure()
        finally:
            await loop.cancel()

    with pytest.raises(DemoError, match="no answer"):
        asyncio.run(scenario())


def test_closed_loop_follows_the_wanted_concurrency() -> None:
    async def scenario() -> list[int]:
        client: Any = FakeClient()
        loop = ClosedLoop(client, model.jobs(PROMPTS, 8, 0))
        seen = []
        for wanted in (1, 4, 2, 3):
            loop.set_concurrency(wanted)
            for _ in range(8):
                await asyncio.sleep(0)
            client.most = 0
            for _ in range(8):
                await asyncio.sleep(0)
            seen.append(client.most)
            loop.raise_failure()
        await loop.drain()
        assert client.under_way == 0
        return seen

    assert asyncio.run(scenario()) == [1, 4, 2, 3]
