"""vLLM's own scheduler, with its schedule of K by batch size exchanged while it runs.

So one engine serves every static K and a tuned schedule, all with captured graphs. Loaded in the
EngineCore process by the option `scheduler_cls`; without a call it is vLLM's scheduler unchanged.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup


def bench_use_table(self: Any, table: list[list[int]] | None) -> None:
    """Exchange the schedule of an EngineCore; None: Kmax for every batch size."""
    scheduler = self.scheduler
    scheduler.dynamic_sd_lookup = (
        None
        if table is None
        else build_dynamic_sd_schedule_lookup(
            [tuple(row) for row in table],
            scheduler.vllm_config.scheduler_config.max_num_seqs,
            scheduler.num_spec_tokens,
        )
    )


EngineCore.bench_use_table = bench_use_table


class TableScheduler(AsyncScheduler):
    """`AsyncScheduler`, which is vLLM's default on a GPU."""


class SyncTableScheduler(Scheduler):
    """`Scheduler`, for synchronous scheduling."""
