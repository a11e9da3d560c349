"""Steps, accepted drafts and hazards of a replay of acceptance data with given K."""

from __future__ import annotations

import itertools

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.step import FloatArray, IntArray


def steps_of(data: AcceptanceData, k: int | IntArray) -> tuple[IntArray, IntArray]:
    """Replay every record with a fixed K, or with the K of the position where a step begins.

    Returns ([S] first position of each step, [S] drafts it accepts, 0..k), records in order.
    A step at the end of a record counts what it accepts, though fewer tokens may be left to emit.
    Raises ValueError for a K the data does not know.
    """
    if np.min(k) < 0 or np.max(k) > data.depth:
        raise ValueError(f"K = {k} leaves 0..{data.depth}, what {data.name} knows")
    accepted = np.minimum(data.accepted, k).astype(np.int64)
    emitted = (accepted + 1).tolist()
    starts: list[int] = []
    for position, end in itertools.pairwise(data.offsets.tolist()):
        while position < end:
            starts.append(position)
            position += emitted[position]
    first: IntArray = np.array(starts, dtype=np.int64)
    return first, accepted[first]


def mean_accepted(data: AcceptanceData, k: int) -> float:
    """Drafts accepted per step of a replay with a fixed K (bonus token not counted)."""
    return float(steps_of(data, k)[1].mean())


def hazards(accepted: IntArray, depth: int) -> tuple[FloatArray, IntArray]:
    """Hazard of each draft position among steps that verified at least `depth` drafts.

    Args:
        accepted: [S] drafts accepted.
        depth: number of positions.

    Returns ([depth] hazard, 0 where never reached; [depth] steps that reached the position).
    """
    reached = np.array([np.count_nonzero(accepted >= j) for j in range(depth + 1)], dtype=np.int64)
    return reached[1:] / np.maximum(reached[:-1], 1), reached[:-1]
