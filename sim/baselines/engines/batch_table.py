"""Baseline: K by batch size, vLLM's `num_speculative_tokens_per_batch_size`.

Source: vLLM 0.32, v1/spec_decode/dynamic/utils.py and v1/core/sched/scheduler.py (the look-up uses
the number of scheduled requests, prefills included). Granularity: L0. Rules kept: ranges ``[from,
to, K]``; a gap between ranges inherits the K of the range before it, larger sizes the K of the last
range; K is clamped to the configured Kmax.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, nearest_allowed
from adaptive_spec.step import Level, Mode, SpecPlan, StepContext


class BatchTableOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `batch_table`."""

    table: list[tuple[int, int, int]]
    """Ranges ``[from, to, K]`` of batch sizes, both ends included, starting at 1."""

    def __post_init__(self) -> None:
        if not self.table:
            raise ValueError("`table` is empty; give ranges [from, to, K]")
        expected = 1
        for low, high, k in self.table:
            if low < expected or high < low:
                raise ValueError(f"`table`: range [{low}, {high}] overlaps or does not ascend")
            if k < 0:
                raise ValueError(f"`table`: K = {k} is negative")
            expected = high + 1
        if self.table[0][0] != 1:
            raise ValueError("`table` must begin at batch size 1")


class BatchTablePolicy(StatelessPolicy):
    """Policy of one K by batch size."""

    name: ClassVar[str] = "batch_table"
    summary: ClassVar[str] = "K by batch size, vLLM's own schedule (option table)"
    Options: ClassVar[type[msgspec.Struct]] = BatchTableOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="vLLM 0.32, num_speculative_tokens_per_batch_size",
        granularity=Level.UNIFORM,
        faults="uses the batch size only; K = 0 keeps the drafter warm",
    )

    def __init__(self, options: BatchTableOptions, *, seed: int = 0) -> None:
        del seed
        self._from = [low for low, _, _ in options.table]
        self._k = [k for _, _, k in options.table]

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the K of the range of this batch size."""
        size = max(context.batch_size, 1)
        wanted = self._k[bisect_right(self._from, size) - 1]
        k = nearest_allowed(wanted, context.capability.uniform_values)
        return SpecPlan(
            step=context.step,
            verify=np.minimum(context.draft_available, k),
            draft_depth=k,
            mode=Mode.ON if k else Mode.OFF_WARM,
            reason=f"table {k} at batch {size}",
        )
