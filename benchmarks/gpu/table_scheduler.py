"""vLLM's own schedulers, whose schedule of K by batch size can be exchanged while they run.

One engine serves every static K and a tuned schedule, all with captured graphs. Named by the option
`scheduler_cls`; without a call of `use_table` they are vLLM's schedulers unchanged.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

_BUILT: WeakSet[Any] = WeakSet()


class _Registered:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _BUILT.add(self)


class AsyncTableScheduler(_Registered, AsyncScheduler):  # type: ignore[misc]
    """`AsyncScheduler`, which is vLLM's default on a GPU."""


class SyncTableScheduler(_Registered, Scheduler):  # type: ignore[misc]
    """`Scheduler`, for synchronous scheduling."""


def use_table(instance_id: str, table: list[list[int]] | None) -> None:
    """Exchange the schedule of the engine with this `instance_id` in this process.

    Args:
        instance_id: of vLLM's configuration.
        table: rows of first and last batch size and K; None: Kmax for every batch size.
    """
    (scheduler,) = (s for s in _BUILT if s.vllm_config.instance_id == instance_id)
    scheduler.dynamic_sd_lookup = (
        None
        if table is None
        else build_dynamic_sd_schedule_lookup(
            [tuple(row) for row in table],
            scheduler.vllm_config.scheduler_config.max_num_seqs,
            scheduler.num_spec_tokens,
        )
    )
