"""Requests whose drafts are all accepted, or none, for longer than others' ever are."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adaptive_spec.operation.stuck_requests import LongestRuns, Stuck, StuckRequests

K, BATCH = 4, 16


def step(names: list[str], slots: list[int], accepted: list[int], verified: int = K) -> Any:
    rows = np.array(slots, dtype=np.int64)
    return SimpleNamespace(
        context=SimpleNamespace(request_ids=names, slots=rows),
        outcome=SimpleNamespace(
            slots=rows,
            verified=np.full(len(slots), verified, dtype=np.int64),
            accepted=np.array(accepted, dtype=np.int64),
        ),
    )


class Traffic:
    """Requests of 40 rounds, each with an acceptance of its own, in blocks of 8 steps."""

    def __init__(self, seed: int = 0) -> None:
        self.stuck = StuckRequests(logging.getLogger("tests.stuck"))
        self.random = np.random.default_rng(seed)
        self.served = 0

    def serve(self, requests: int, rate: float | None = None, rounds: int = 40) -> None:
        for _ in range(requests // BATCH):
            names = [f"r{self.served + n}" for n in range(BATCH)]
            slots = [(self.served + n) % (2 * BATCH) for n in range(BATCH)]
            each = self.random.beta(6, 3, BATCH) if rate is None else np.full(BATCH, rate)
            for _ in range(rounds // 8):
                hits = self.random.random((8, BATCH, K)) < each[:, None]
                kept = hits.cumprod(axis=2).sum(axis=2)
                self.stuck.finished([step(names, slots, row.tolist()) for row in kept])
            self.stuck.ending(np.array(slots))
            self.served += BATCH


@pytest.mark.slow
def test_ordinary_requests_are_called_stuck_once_in_ten_thousand() -> None:
    traffic = Traffic()
    traffic.serve(40_000)
    assert sum(traffic.stuck.counts.values()) <= 12
    assert all(bound is not None for bound in traffic.stuck.bounds().values())


@pytest.mark.parametrize(("rate", "kind"), [(1.0, Stuck.ALL), (0.0, Stuck.NONE)])
def test_a_stuck_request_is_counted_once_and_the_first_is_logged(
    rate: float, kind: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    traffic = Traffic()
    traffic.serve(8_000)
    before = dict(traffic.stuck.events())
    first = f"request 'r{traffic.served}':"
    with caplog.at_level(logging.WARNING, logger="tests.stuck"):
        traffic.serve(2 * BATCH, rate, rounds=400)
    after = traffic.stuck.events()
    assert after[kind] - before.get(kind, 0) == 2 * BATCH
    assert sum(after.values()) - sum(before.values()) == 2 * BATCH
    lines = [text for text in caplog.messages if f"event {kind}" in text]
    assert len(lines) <= 1
    if kind not in before:
        assert first in lines[0]
    assert traffic.stuck.latest[kind] == f"r{traffic.served - 1}"


def test_nobody_is_stuck_before_enough_requests_have_ended() -> None:
    traffic = Traffic()
    traffic.serve(1_600)
    traffic.serve(BATCH, 1.0, rounds=400)
    assert traffic.stuck.events() == {}
    assert set(traffic.stuck.bounds().values()) == {None}


def test_a_run_ends_with_a_rejected_draft_and_a_request_takes_none_over() -> None:
    traffic = Traffic()
    traffic.serve(4_000)
    bound = traffic.stuck.bounds()[Stuck.ALL]
    assert bound is not None
    blocks = bound // (8 * K)  # not enough for an alarm
    for name in ("a", "b"):
        for _ in range(blocks):
            traffic.stuck.finished([step([name], [70], [K]) for _ in range(8)])
        traffic.stuck.ending(np.array([70]))
        traffic.stuck.finished([])
    for kept in ([K] * 8, [K] * 7 + [K - 1]) * blocks:
        traffic.stuck.finished([step(["c"], [71], [each]) for each in kept])
    assert Stuck.ALL not in traffic.stuck.events()


def test_steps_that_verify_nothing_neither_end_a_run_nor_make_it_longer() -> None:
    traffic = Traffic()
    traffic.serve(4_000)
    for _ in range(200):
        traffic.stuck.finished([step(["idle"], [72], [0], verified=0) for _ in range(8)])
    assert Stuck.NONE not in traffic.stuck.events()


def test_stuck_requests_do_not_hide_the_next_one_and_longer_traffic_passes_in_time() -> None:
    runs = LongestRuns()
    ordinary = np.arange(20_000) % 50
    runs.ended(ordinary)
    assert 49 <= runs.too_long < 55
    for _ in range(3):
        runs.passed()
        runs.ended(np.array([4_000]))
    runs.ended(ordinary[:512])
    assert runs.too_long < 60
    while runs.too_long < 4_000:
        runs.passed()
        runs.ended(np.full(256, 4_000))
    runs.ended(np.full(40_000, 20))
    assert runs.too_long == 20
