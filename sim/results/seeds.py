"""Runs of several seeds together: means, spread, and the best fixed K as far as it is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from adaptive_spec.sim.results.result import Result

_ONE_SIDED_95 = {2: 6.31, 3: 2.92, 4: 2.35, 5: 2.13, 6: 2.02}
"""Student's t by number of seeds; 1.9 beyond."""


def mean_and_spread(
    runs: Sequence[Result], metric: Callable[[Result], float | None]
) -> tuple[float, float] | None:
    """Mean over the seeds and half their range; None where a run lacks the figure."""
    values = [value for run in runs if (value := metric(run)) is not None]
    if len(values) < len(runs) or not values:
        return None
    return sum(values) / len(values), (max(values) - min(values)) / 2.0


def best_static_ks(static: Sequence[Sequence[Result]], *, closed: bool) -> list[int]:
    """The fixed K with the best mean score, and those that the seeds do not tell apart from it.

    Seeds share load and luck between K, so the ratio of two K is compared seed by seed (a one-sided
    t-test, 5 %). A single seed tells nothing apart and gives its best K alone.

    Args:
        static: for each seed, the results of K = 0, 1, ..., Kmax.
        closed: throughput is the score, otherwise TPOT.
    """
    scores = np.array([[run.score(closed=closed) for run in runs] for runs in static])
    relative = scores / scores.mean(axis=1, keepdims=True)
    best = int(np.argmax(relative.mean(axis=0)))
    seeds = len(static)
    if seeds == 1:
        return [best]
    behind = relative[:, [best]] / relative - 1.0
    margin = behind.std(axis=0, ddof=1) / np.sqrt(seeds) * _ONE_SIDED_95.get(seeds, 1.9)
    return [k for k in range(scores.shape[1]) if k == best or behind[:, k].mean() <= margin[k]]
