"""Baseline: K by batch size, vLLM's `num_speculative_tokens_per_batch_size`.

Source: vLLM 0.32, v1/spec_decode/dynamic/utils.py and v1/core/sched/scheduler.py (the look-up uses
the number of scheduled requests, prefills included). Granularity: L0. Rules kept: ranges ``[from,
to, K]`` in any order; a gap between ranges inherits the K of the range before it, larger sizes the
K of the last range; K is clamped to the configured Kmax.

vLLM has no default for it: users measure every K at some batch sizes and enter the winners, which
`tuned_table` picks.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
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
        msgspec.structs.force_setattr(self, "table", sorted(self.table))
        expected = 1
        for low, high, k in self.table:
            if low < expected or high < low:
                raise ValueError(f"`table`: range [{low}, {high}] overlaps another or ends first")
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


def tuned_table(results: Mapping[int, Mapping[int, float]]) -> list[tuple[int, int, int]]:
    """Return ranges ``[from, to, K]`` with the best K; ties go to the smaller K.

    A measured batch size represents the sizes around it, up to the geometric mean with its
    neighbours. The first also covers all smaller sizes, the last all larger ones (`batch_table`
    extends its last range). Neighbours with the same K form one range.

    Args:
        results: throughput by batch size and K, in any unit.

    Raises DataError for empty results or an impossible figure.
    """
    if not results:
        raise DataError("no throughput to tune a table with: measure at least one batch size")
    table: list[tuple[int, int, int]] = []
    sizes = sorted(results)
    for place, size in enumerate(sizes):
        k = _best_k(size, results[size])
        first = table[-1][1] + 1 if table else 1
        last = size if place == len(sizes) - 1 else math.isqrt(size * sizes[place + 1])
        if table and table[-1][2] == k:
            table[-1] = (table[-1][0], last, k)
        else:
            table.append((first, last, k))
    return table


def _best_k(size: int, throughput: Mapping[int, float]) -> int:
    if size < 1 or not throughput:
        raise DataError(f"batch size {size}: a positive size with the throughput of some K needed")
    for k, figure in throughput.items():
        if k < 0 or not (math.isfinite(figure) and figure > 0):
            raise DataError(f"batch size {size}: throughput {figure} at K = {k} is impossible")
    return max(throughput, key=lambda k: (throughput[k], -k))
