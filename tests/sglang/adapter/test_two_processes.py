"""Two processes over gloo: one decision for more than 1,000 steps; no start without the other.

As replicas of attention DP: the larger of two proposals.
"""

from typing import Any

import pytest

from tests.engine_processes import free_port, in_two_processes

pytestmark = pytest.mark.engine

STEPS = 1200


def both(rank: int, port: int, answers: Any) -> None:
    """All that a rank does, one after the other in one group."""
    import torch.distributed as distributed

    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    group = distributed.group.WORLD
    answers.put((rank, serve(rank, group), start(rank, group), wish(rank, group)))
    distributed.barrier()
    distributed.destroy_process_group()


def serve(rank: int, group: Any) -> Any:
    """One rank: its own policy, its own clock, the same requests."""
    import random

    from policies_for_tests import RecordingPolicy
    from scheduler_loop import Loop

    from adaptive_spec.adapters.sglang.agreement import Agreement

    agreement = Agreement(group)
    loop = Loop(seed=11, overlap=True)
    source = random.Random(rank)
    loop.attach(
        RecordingPolicy(fails=13, hold=1 + rank),
        agreement=agreement,
        clock=lambda: source.uniform(0.0, 1e6),
    )
    while len(loop.history) < STEPS:
        loop.run(1)
    return agreement.size, agreement.decides, loop.history, loop.own.fed


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


def start(rank: int, group: Any) -> dict[str, bool]:
    """All starts one after the other: the group works after each, and its keys are gone."""
    from torch.distributed import barrier
    from torch.distributed.distributed_c10d import _get_default_store

    from adaptive_spec.adapters.sglang.agreement import Agreement

    said = {}
    for scenario in STARTS:
        said[scenario.__name__] = scenario(rank, Agreement(group))
        barrier()
        if rank == 0:
            for key in ("0", "1", "all"):
                _get_default_store().delete_key(f"adaptive_spec/ready/0/{key}")
        barrier()
    return said


WISHES = ((3, 5), (5, 3), (0, 2), (0, 0))


def wish(rank: int, group: Any) -> Any:
    """One replica: its wishes, and what it is told to run."""
    from adaptive_spec.adapters.sglang.agreement import Agreement

    agreement = Agreement(group, rank_of_replica=0)
    told = [agreement.settle(wishes[rank]) for wishes in WISHES]
    return agreement.decides, agreement.all_ready(True), told


@pytest.fixture(scope="module")
def found() -> list[Any]:
    """By rank: its number, steps, starts and wishes."""
    return in_two_processes(both, free_port())


def test_replicas_read_the_larger_proposal(found: list[Any]) -> None:
    told = [max(wishes) for wishes in WISHES]
    assert [answer[3] for answer in found] == [(True, True, told)] * 2


def test_both_processes_run_the_same_k(found: list[Any]) -> None:
    first, second = (answer[1] for answer in found)
    assert (first[:2], second[:2]) == ((2, True), (2, False))
    assert len(first[2]) == STEPS
    assert first[2:] == second[2:]
    assert len({k for _, k in first[2]}) > 3


def test_ranks_start_together_or_not_at_all(found: list[Any]) -> None:
    expected = {scenario.__name__: ready for scenario, ready in STARTS.items()}
    assert [answer[2] for answer in found] == [expected] * 2
