"""The proposal for attention DP (adapters/UPSTREAM.md): a wish for K goes with SGLang's sizes.

Real: SGLang's gather of sizes before each step, its hook registry, gloo. The column is a hook's;
no model runs, and no engine is steered by this.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine_processes import free_port, in_two_processes

pytestmark = [pytest.mark.engine, pytest.mark.long]

WISHES = ((3, 5), (5, 3), (0, 2), (None, 4), (1, None), (None, None))
"""Of both ranks, step by step; None: the rank is idle."""


def add_column() -> None:
    """Let each rank's row end in its wish, 0 where SGLang fills a row in, and read the largest."""
    import torch
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    place = "sglang.srt.managers.scheduler_components.dp_attn.MLPSyncBatchInfo."

    def own_row(row: Any, self: Any, *_: Any, **__: Any) -> Any:
        return torch.cat([row, row.new_tensor([getattr(self, "wish", 0)])])

    def filled_in(row: Any, self: Any, *_: Any, **__: Any) -> Any:
        return torch.cat([row, row.new_tensor([0])])

    def largest(_: Any, self: Any, *__: Any, **___: Any) -> None:
        self.steps = int(self.tp0_info_cpu[:, -1].max())

    HookRegistry.register(place + "_get_local_tensor", own_row, HookType.AFTER)
    HookRegistry.register(place + "_get_fallback_tensor", filled_in, HookType.AFTER)
    HookRegistry.register(place + "all_gather", largest, HookType.AFTER)
    HookRegistry.apply_hooks()


def gather(rank: int, port: int, answers: Any) -> None:
    """One rank: its sizes and wishes, and what it reads after each gather."""
    import torch
    import torch.distributed as distributed
    from sglang.srt.managers.scheduler_components.dp_attn import MLPSyncBatchInfo
    from sglang.srt.model_executor.forward_batch_info import ForwardMode
    from sglang.srt.runtime_context import get_parallel

    add_column()
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    both = SimpleNamespace(active_ranks_cpu=torch.ones(2, dtype=torch.int32))
    get_parallel().override_permanently(tp_group=both)
    found = []
    for wishes in WISHES:
        wish = wishes[rank]
        idle = wish is None
        info = MLPSyncBatchInfo(
            num_dp_ranks=2,
            tp_size=1,
            cp_size=1,
            num_tokens=0 if idle else 7 + rank,
            num_tokens_for_logprob=0,
            can_run_decode_cuda_graph=True,
            can_run_draft_cuda_graph=True,
            can_run_prefill_cuda_graph=True,
            is_extend_in_batch=False,
            local_can_run_tbo=False,
            local_forward_mode=(ForwardMode.IDLE if idle else ForwardMode.DECODE).value,
        )
        info.wish = wish or 0
        info.all_gather(device="cpu", group=distributed.group.WORLD)
        found.append((info.steps, info.global_num_tokens, info.is_extend_in_batch))
    answers.put((rank, found))
    distributed.barrier()


def test_both_ranks_read_the_largest_wish_and_sglangs_own_columns_are_as_before() -> None:
    (_, first), (_, second) = in_two_processes(gather, free_port())
    assert first == second
    expected = [max(wish or 0 for wish in wishes) for wishes in WISHES]
    assert [steps for steps, _, _ in first] == expected
    sizes = [[0 if wish is None else 7 + n for n, wish in enumerate(pair)] for pair in WISHES]
    assert [(tokens, extend) for _, tokens, extend in first] == [(size, False) for size in sizes]
