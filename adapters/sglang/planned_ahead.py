"""A plan for the next decode step, made while the device works.

The plan knows neither what the running step accepts nor which requests come or go meanwhile. One K
serves all requests of a batch, so the plan holds while the batch stays nearly the same. Requests
that the plan does not cover are counted, and not learned from, in this one step.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from adaptive_spec.step import SpecPlan, StepContext

COVERED = 0.75
"""Least share of requests that the planned and the present batch have in common."""


class PlannedAhead(NamedTuple):
    """A plan, and what it was made for.

    Attributes:
        context: state that the plan was made from.
        plan: the plan.
        names: requests of the context.
    """

    context: StepContext
    plan: SpecPlan
    names: frozenset[str]

    def fits(self, names: Collection[str | None], own_k: int) -> bool:
        """Return whether the plan holds for a batch of these requests.

        Args:
            names: requests of the batch.
            own_k: K of SGLang's own schedule now, which a plan in shadow mode must have.
        """
        common = len(self.names.intersection(names))
        most = max(len(names), len(self.names))
        own = self.plan.acts or self.context.engine_k == own_k
        return own and common >= COVERED * most
