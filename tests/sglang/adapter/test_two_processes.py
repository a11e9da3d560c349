"""Two processes over gloo: one decision for more than 1,000 steps; no start without the other.

As replicas of attention DP: the larger of two proposals.
"""

from typing import Any

import pytest

from tests.engine_processes import free_port, in_two_processes

pytestmark = pytest.mark.engine

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


def both_ready(rank: int, agreement: Any) -> bool:
    return bool(agreement.all_ready(True))


def one_not_ready(rank: int, agreement: Any) -> bool:
    return bool(agreement.all_ready(rank == 0))


def first_alone(rank: int, agreement: Any) -> bool:
    """The second process has not got the plugin: it never asks."""
    return rank == 0 and agreement.all_ready(True, patience=0.5)


def second_alone(rank: int, agreement: Any) -> bool:
    return rank == 1 and agreement.all_ready(True, patience=0.25)


def second_gave_up(rank: int, agreement: Any) -> bool:
    """Both are ready, but the first asks when the second does not wait any more."""
    from torch.distributed.distributed_c10d import _get_default_store

    if rank == 1:
        return bool(agreement.all_ready(True, patience=0.25))
    _get_default_store().wait(["adaptive_spec/ready/0/all"])
    return bool(agreement.all_ready(True))


STARTS = {both_ready: True} | dict.fromkeys(
    (one_not_ready, first_alone, second_alone, second_gave_up), False
)


def start(rank: int, port: int, answers: Any) -> None:
    """All starts one after the other, in one group: it must work as before after each."""
    from torch.distributed import barrier
    from torch.distributed.distributed_c10d import _get_default_store

    from adaptive_spec.adapters.sglang.agreement import Agreement

    group = join_group(rank, port)
    said = {}
    for scenario in STARTS:
        said[scenario.__name__] = scenario(rank, Agreement(group))
        barrier()
        if rank == 0:
            for key in ("0", "1", "all"):
                _get_default_store().delete_key(f"adaptive_spec/ready/0/{key}")
        barrier()
    answers.put((rank, said))
    leave_group()


WISHES = ((3, 5), (5, 3), (0, 2), (0, 0))


def wish(rank: int, port: int, answers: Any) -> None:
    """One replica: its wishes, and what it is told to run."""
    from adaptive_spec.adapters.sglang.agreement import Agreement

    agreement = Agreement(join_group(rank, port), rank_of_replica=0)
    told = [agreement.settle(wishes[rank]) for wishes in WISHES]
    answers.put((rank, agreement.decides, agreement.all_ready(True), told))
    leave_group()


def test_replicas_read_the_larger_proposal() -> None:
    told = [max(wishes) for wishes in WISHES]
    assert in_two_processes(wish, free_port()) == [(0, True, True, told), (1, True, True, told)]


def test_both_processes_run_the_same_k() -> None:
    found = in_two_processes(serve, free_port())
    assert [answer[:3] for answer in found] == [(0, 2, True), (1, 2, False)]
    assert len(found[0][3]) == STEPS
    assert found[0][3:] == found[1][3:]
    assert len({k for _, k in found[0][3]}) > 3


def test_ranks_start_together_or_not_at_all() -> None:
    expected = {scenario.__name__: ready for scenario, ready in STARTS.items()}
    assert in_two_processes(start, free_port()) == [(0, expected), (1, expected)]
