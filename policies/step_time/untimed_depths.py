"""The K to run at a load so that its step times become known, each offered a few times."""

from __future__ import annotations

from collections.abc import Callable

from adaptive_spec.policies.step_time.model import CostModel, load_bin
from adaptive_spec.step import StepContext


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
        self, cost: CostModel, context: StepContext, worthwhile: Callable[[int], bool] | None = None
    ) -> int | None:
        """The K to run, among those `worthwhile`; None if there is none."""
        if self._changes != cost.changes:
            self._changes = cost.changes
            self._offered.clear()
        load = load_bin(context.batch_size)

        def left(k: int) -> bool:
            few = self._offered.get((load, k), 0) < self._most
            return few and (worthwhile is None or worthwhile(k))

        k = cost.unsure(context, left)
        if k is not None:
            self._offered[load, k] = self._offered.get((load, k), 0) + 1
        return k
