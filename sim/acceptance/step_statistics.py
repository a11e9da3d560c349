"""What a replay with one fixed K sees in acceptance data: accepted per step, and from step to step.

Speculation is correlated: a step after a fully accepted one is accepted more often. These figures
say by how much, for real and for generated data alike.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.step import FloatArray, IntArray


@dataclass(frozen=True)
class StepCorrelation:
    """How one step's acceptance depends on the step before it, at a fixed K.

    Attributes:
        draft_tokens: K.
        steps: steps replayed.
        all_accepted: share of steps that accept all K.
        after_all: the same among steps whose predecessor in the request accepted all; nan if none.
        after_none: the same among steps whose predecessor accepted nothing; nan if none.
        pairs_after_all: number of steps behind `after_all`.
        pairs_after_none: number of steps behind `after_none`.
    """

    draft_tokens: int
    steps: int
    all_accepted: float
    after_all: float
    after_none: float
    pairs_after_all: int
    pairs_after_none: int


def steps_of(data: AcceptanceData, k: int) -> tuple[IntArray, IntArray]:
    """Replay every record with a fixed K.

    Returns ([S] first position of each step, [S] drafts it accepts, 0..k), records in order.
    A step at the end of a record counts what it accepts, though fewer tokens may be left to emit.
    Raises ValueError for a K the data does not know.
    """
    if not 0 <= k <= data.depth:
        raise ValueError(f"K = {k} leaves 0..{data.depth}, what {data.name} knows")
    accepted = np.minimum(data.accepted, k).tolist()
    starts: list[int] = []
    bounds = data.offsets.tolist()
    for position, end in itertools.pairwise(bounds):
        while position < end:
            starts.append(position)
            position += accepted[position] + 1
    first: IntArray = np.array(starts, dtype=np.int64)
    return first, np.minimum(data.accepted[first], k).astype(np.int64)


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


def step_correlation(data: AcceptanceData, k: int) -> StepCorrelation:
    """Step-to-step correlation in a replay with a fixed K >= 1, as figure V7 states it."""
    if k < 1:
        raise ValueError(f"K must be at least 1, got {k}")
    starts, accepted = steps_of(data, k)
    record = np.searchsorted(data.offsets, starts, side="right")
    follows = record[1:] == record[:-1]
    before, now = accepted[:-1][follows], accepted[1:][follows] == k
    after_all, after_none = now[before == k], now[before == 0]
    return StepCorrelation(
        draft_tokens=k,
        steps=len(accepted),
        all_accepted=float((accepted == k).mean()),
        after_all=float(after_all.mean()) if len(after_all) else float("nan"),
        after_none=float(after_none.mean()) if len(after_none) else float("nan"),
        pairs_after_all=len(after_all),
        pairs_after_none=len(after_none),
    )


def between_request_variance(data: AcceptanceData) -> float:
    """Variance between records of the share of positions whose first draft is accepted.

    Records weigh by length; the sampling noise of short records is included.
    """
    first = (data.accepted > 0).astype(np.float64)
    lengths = data.lengths
    rate = np.add.reduceat(first, data.offsets[:-1]) / lengths
    return float(np.average((rate - first.mean()) ** 2, weights=lengths))
