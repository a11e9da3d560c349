"""Best `batch_table` for measured throughput: vLLM's schedule as its users tune it.

vLLM has no default for `num_speculative_tokens_per_batch_size`: users measure every K at some batch
sizes and enter the winners. This module does the second step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from adaptive_spec.errors import DataError


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
