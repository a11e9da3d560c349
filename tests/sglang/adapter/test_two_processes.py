"""Rank 0's decision reaches another process over gloo, for more than 1,000 steps."""

from __future__ import annotations

import multiprocessing
import socket
from typing import Any

import pytest

STEPS = 1200


def serve(rank: int, port: int, answers: Any) -> None:
    """One rank: its own policy, its own clock, the same requests."""
    import random

    import torch.distributed as distributed
    from policies_for_tests import RecordingPolicy
    from scheduler_loop import Loop

    from adaptive_spec.adapters.sglang.agreement import Agreement

    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    agreement = Agreement(distributed.group.WORLD)
    loop = Loop(seed=11, overlap=True)
    source = random.Random(rank)
    loop.attach(
        RecordingPolicy(fails=13, hold=1 + rank),
        agreement=agreement,
        clock=lambda: source.uniform(0.0, 1e6),
    )
    while len(loop.history) < STEPS:
        loop.run(1)
    answers.put((rank, agreement.size, agreement.decides, loop.history, loop.own.fed))
    distributed.barrier()
    distributed.destroy_process_group()


def test_both_processes_run_the_same_k() -> None:
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=serve, args=(rank, port, answers)) for rank in range(2)]
    for each in ranks:
        each.start()
    found = sorted(answers.get(timeout=120) for _ in ranks)
    for each in ranks:
        each.join(60)
        assert each.exitcode == 0
    assert [answer[:3] for answer in found] == [(0, 2, True), (1, 2, False)]
    assert len(found[0][3]) == STEPS
    assert found[0][3:] == found[1][3:]
    assert len({k for _, k in found[0][3]}) > 3
