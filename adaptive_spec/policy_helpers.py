"""Building blocks for policies, public: see the page "Write a policy"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import State
from adaptive_spec.step import Capability, FinishedStep, IntArray, Mode, SpecPlan, StepContext


class StatelessPolicy:
    """Empty implementations of the contract's learning methods."""

    def observe(self, step: FinishedStep) -> None:
        """Ignore the step."""

    def forget(self, slots: IntArray) -> None:
        """Do nothing: no state is kept per request."""

    def state(self) -> State:
        """Return an empty state."""
        return {}

    def restore(self, state: State) -> None:
        """Accept an empty state only."""
        if state:
            raise PolicyError(f"this policy keeps no state, got keys {sorted(state)}")


def load_bin(batch_size: int) -> int:
    """Return the load's number: those within a factor of two count as alike (1, 2, 3-4, 5-8)."""
    return (batch_size - 1).bit_length()


def fixed_plan(context: StepContext, wanted: int, reason: str) -> SpecPlan:
    """Plan the same K for all requests: the nearest to `wanted` that the engine can run."""
    k = nearest_allowed(wanted, context.capability.uniform_values)
    return SpecPlan(
        step=context.step,
        verify=np.minimum(context.draft_available, k),
        draft_depth=k,
        mode=Mode.ON if k else off_mode(context.capability),
        reason=reason if k == wanted else f"{reason}, the engine runs {k}",
    )


def off_mode(capability: Capability) -> Mode:
    """Return the cheapest permanent off mode: no drafter pass where the engine can skip it."""
    return Mode.OFF_COLD if capability.cold_off else Mode.OFF_WARM


def nearest_allowed(k: int, ladder: Sequence[int]) -> int:
    """Return the largest K of an ascending ladder that is not above `k`, else its smallest."""
    return max((value for value in ladder if value <= k), default=ladder[0])
