"""Baseline: K by batch size, TensorRT-LLM's `draft_len_schedule`.

Source: TensorRT-LLM 1.3 and main, `get_draft_len_for_batch_size` in _torch/speculative/utils.py,
used by `_handle_dynamic_draft_len` in _torch/pyexecutor/py_executor.py (source read, not run).
Signal: the batch size. Granularity: L0. Rules kept:

* A key is the largest batch size of its K; beyond the last key K is 0. (In 1.2 a key is the
  smallest batch size instead, and on the two-engine path a smaller K saves no target compute.)
* At K = 0 the drafter does not run, not even to keep its state in step. A request that lives
  through such a step accepts hardly any later draft (#16888); the schedule ignores this. In the
  simulator this is OFF-cold, which stops drafting for those requests, so this baseline does not pay
  for drafts that would be rejected.

Upstream also counts requests in prefill; here only decoding requests count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

import msgspec

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.step import Level, SpecPlan, StepContext

Schedule: TypeAlias = list[tuple[int, int]]
"""Pairs ``[largest batch size, K]``, ascending; JSON has no integer keys."""


class ScheduleOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `trtllm_schedule`."""

    schedule: Schedule
    """Pairs ``[largest batch size, K]``; upstream's ``{4: 4, 8: 2}`` is ``[[4,4],[8,2]]``."""

    def __post_init__(self) -> None:
        check_schedule(self.schedule)


class TensorRTLLMSchedulePolicy(StatelessPolicy):
    """Policy of one K by batch size, given by upper bounds."""

    name: ClassVar[str] = "trtllm_schedule"
    summary: ClassVar[str] = "K by batch size, TensorRT-LLM's draft_len_schedule (option schedule)"
    Options: ClassVar[type[msgspec.Struct]] = ScheduleOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="TensorRT-LLM, draft_len_schedule (#8194, #10860)",
        granularity=Level.UNIFORM,
        faults="uses the batch size only",
    )

    def __init__(self, options: ScheduleOptions, *, seed: int = 0) -> None:
        del seed
        self._schedule = options.schedule

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the K of the first pair with a batch size of at least this batch's."""
        k = scheduled_k(self._schedule, context.batch_size)
        return fixed_plan(context, k, f"schedule {k} at batch {context.batch_size}")


def scheduled_k(schedule: Sequence[tuple[int, int]], batch_size: int) -> int:
    """Return the K of a batch size; 0 beyond the last pair, as upstream."""
    position = bisect_left(schedule, batch_size, key=lambda pair: pair[0])
    return schedule[position][1] if position < len(schedule) else 0


def check_schedule(schedule: Schedule) -> None:
    """Raise ValueError where upstream refuses: empty, not ascending, K below 0."""
    if not schedule:
        raise ValueError("`schedule` is empty; give pairs [largest batch size, K]")
    previous = 0
    for size, k in schedule:
        if size <= previous:
            raise ValueError(f"`schedule`: batch size {size} does not ascend from 1")
        if k < 0:
            raise ValueError(f"`schedule`: K = {k} is negative")
        previous = size
