"""All ranks capture varlen graphs, or none does: a real vote over gloo, in two processes."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.engine_processes import in_two_processes

pytestmark = pytest.mark.engine


VOTES = ((True, True), True), ((True, False), False), ((False, False), False)


def _vote(rank: int, file: str, answers: Any) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    # In place of vLLM's module, which takes a minute to import: the world's group and its size.
    state = ModuleType("vllm.distributed.parallel_state")
    world = SimpleNamespace(world_size=2, cpu_group=dist.group.WORLD)
    state.get_world_group = lambda: world  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.distributed"):
        sys.modules[name] = ModuleType(name)
    sys.modules["vllm.distributed.parallel_state"] = state
    from adaptive_spec.adapters.vllm.varlen_capture import _all_ranks_agree

    answers.put((rank, [_all_ranks_agree(votes[rank]) for votes, _ in VOTES]))
    dist.destroy_process_group()


def test_one_refusing_rank_is_enough(tmp_path: Path) -> None:
    outcomes = [outcome for _, outcome in VOTES]
    found = in_two_processes(_vote, str(tmp_path / "store"))
    assert found == [(0, outcomes), (1, outcomes)]
