"""The K that a load has not been timed with, each offered a limited number of times."""

from __future__ import annotations

from collections.abc import Callable

from adaptive_spec.policies.step_time.coverage import load_bin
from adaptive_spec.policies.step_time.model import CostModel


class UntimedDepths:
    """Order in which K are timed at a load.

    Args:
        attempts: times a K is offered at a load, anew after step times have changed. Running it may
            fail to time it: requests near their end never reach it, and a step with prompts
            measures the prompts.
    """

    def __init__(self, attempts: int) -> None:
        self._most = attempts
        self._offered: dict[tuple[int, int], int] = {}
        self._changes = 0

    def offer(
        self, cost: CostModel, batch_size: int, worthwhile: Callable[[int], bool] | None = None
    ) -> int | None:
        """Return the smallest `worthwhile` K that is not timed at this load; None without any."""
        if self._changes != cost.changes:
            self._changes = cost.changes
            self._offered.clear()
        load = load_bin(batch_size)
        for k in cost.missing_depths(batch_size):
            offered = self._offered.get((load, k), 0)
            if offered < self._most and (worthwhile is None or worthwhile(k)):
                self._offered[load, k] = offered + 1
                return k
        return None
