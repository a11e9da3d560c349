"""Two halves of acceptance data, by whole records."""

from __future__ import annotations

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.pool import select


def halves(data: AcceptanceData, seed: int) -> tuple[AcceptanceData, AcceptanceData]:
    """Two halves by record, drawn by the seed: one to fit on, one held out.

    Records are paired by length, and the halves share every pair, so that a few very long records
    don't decide the outcome.

    Raises ValueError for fewer than two records.
    """
    if data.records < 2:
        raise ValueError(f"{data.name}: {data.records} record can't be halved")
    by_length = np.argsort(data.lengths, kind="stable")[::-1]
    second = np.random.default_rng(seed).integers(0, 2, (data.records + 1) // 2)
    in_first = (np.arange(data.records) + second.repeat(2)[: data.records]) % 2 == 0
    if data.records % 2:
        in_first[-1] = False
    return select(data, np.sort(by_length[in_first])), select(data, np.sort(by_length[~in_first]))
