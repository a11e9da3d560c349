"""Two processes over gloo: one decision for more than 1,000 steps; no start without the other."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

STEPS = 1200


def join_group(rank: int, port: int) -> Any:
    """The group of both processes."""
    import torch.distributed as distributed

    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    return distributed.group.WORLD


def leave_group() -> None:
    import torch.distributed as distributed

    distributed.barrier()
    distributed.destroy_process_group()


def serve(rank: int, port: int, answers: Any) -> None:
    """One rank: its own policy, its own clock, the same requests."""
    import random

    from policies_for_tests import RecordingPolicy
    from scheduler_loop import Loop

    from adaptive_spec.adapters.sglang.agreement import Agreement

    agreement = Agreement(join_group(rank, port))
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
    leave_group()


def both_ready(rank: int, port: int, answers: Any) -> None:
    from adaptive_spec.adapters.sglang.agreement import Agreement

    answers.put((rank, Agreement(join_group(rank, port)).all_ready(True)))
    leave_group()


def one_not_ready(rank: int, port: int, answers: Any) -> None:
    from adaptive_spec.adapters.sglang.agreement import Agreement

    answers.put((rank, Agreement(join_group(rank, port)).all_ready(rank == 0)))
    leave_group()


def first_alone(rank: int, port: int, answers: Any) -> None:
    """The second process has not got the plugin: it never asks."""
    from adaptive_spec.adapters.sglang.agreement import Agreement

    group = join_group(rank, port)
    answers.put((rank, rank == 0 and Agreement(group).all_ready(True, patience=0.5)))
    leave_group()


def second_alone(rank: int, port: int, answers: Any) -> None:
    from adaptive_spec.adapters.sglang.agreement import Agreement

    group = join_group(rank, port)
    answers.put((rank, rank == 1 and Agreement(group).all_ready(True, patience=0.25)))
    leave_group()


def in_two_processes(function: Callable[[int, int, Any], None]) -> list[Any]:
    """What both put, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=function, args=(rank, port, answers)) for rank in range(2)]
    for each in ranks:
        each.start()
    found = sorted(answers.get(timeout=240) for _ in ranks)
    for each in ranks:
        each.join(60)
        assert each.exitcode == 0
    return found


def test_both_processes_run_the_same_k() -> None:
    found = in_two_processes(serve)
    assert [answer[:3] for answer in found] == [(0, 2, True), (1, 2, False)]
    assert len(found[0][3]) == STEPS
    assert found[0][3:] == found[1][3:]
    assert len({k for _, k in found[0][3]}) > 3


@pytest.mark.parametrize(
    ("function", "ready"),
    [(both_ready, True), (one_not_ready, False), (first_alone, False), (second_alone, False)],
)
def test_ranks_start_together_or_not_at_all(function: Any, ready: bool) -> None:
    """And the group works as before: `leave_group` passes a barrier."""
    assert in_two_processes(function) == [(0, ready), (1, ready)]
