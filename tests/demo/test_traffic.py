from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from benchmarks.bench_pair.prompts import Job, endless_jobs
from demo.errors import DemoError
from demo.traffic import (
    ACCEPTED_TOKENS,
    DRAFT_TOKENS,
    DRAFTS,
    ClosedLoop,
    counters_in,
    serve_all,
)


def jobs(count: int, tokens: int, seed: int) -> list[Job]:
    return list(islice(endless_jobs(PROMPTS, tokens, seed), count))


PROMPTS = {kind: [f"{kind} {n}" for n in range(4)] for kind in ("code", "json", "log")}


class FakeClient:
    """Answers after two turns of the event loop; fails on request."""

    def __init__(self, failing: int | None = None) -> None:
        self.done: list[Job] = []
        self.under_way = self.most = 0
        self._failing = failing

    async def complete(self, job: Job) -> int:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.under_way -= 1
        if len(self.done) == self._failing:
            raise DemoError("no answer")
        self.done.append(job)
        return job.max_tokens


def test_jobs_are_drawn_by_seed_and_all_kinds_are_alike() -> None:
    first, again, other = (jobs(12, 32, seed) for seed in (1, 1, 2))
    assert first == again
    assert [job.prompt for job in first] != [job.prompt for job in other]
    assert not {job.number for job in first} & {job.number for job in other}
    assert set(Counter(job.kind for job in first).values()) == {4}
    assert len({job.prompt for job in first}) == 12


def test_counters_are_summed_over_labels() -> None:
    text = "\n".join(
        [
            f"# HELP {DRAFT_TOKENS} Number of draft tokens.",
            f'{DRAFT_TOKENS}{{engine="0",model_name="a b"}} 12.0',
            f'{DRAFT_TOKENS}{{engine="1",model_name="a b"}} 3.0',
            f"{ACCEPTED_TOKENS} 5.0",
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 4.0',
        ]
    )
    assert counters_in(text) == {DRAFTS: 0.0, DRAFT_TOKENS: 15.0, ACCEPTED_TOKENS: 5.0}


def test_fixed_work_is_done_once_at_the_asked_concurrency() -> None:
    client: Any = FakeClient()
    work = jobs(10, 8, 0)
    assert asyncio.run(serve_all(client, work, 4)) > 0
    assert sorted(job.number for job in client.done) == sorted(job.number for job in work)
    assert client.most == 4


def test_a_failed_request_ends_the_work_with_its_own_error() -> None:
    client: Any = FakeClient(failing=3)
    with pytest.raises(DemoError, match="no answer"):
        asyncio.run(serve_all(client, jobs(10, 8, 0), 4))


def test_closed_loop_follows_the_wanted_concurrency() -> None:
    async def scenario() -> list[int]:
        client: Any = FakeClient()
        loop = ClosedLoop(client, endless_jobs(PROMPTS, 8, 0))
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
