"""A base for policies that learn nothing."""

from __future__ import annotations

from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import State
from adaptive_spec.step import FinishedStep, IntArray


class StatelessPolicy:
    """Implements the learning half of the contract as nothing."""

    def observe(self, step: FinishedStep) -> None:
        """Nothing to learn."""

    def forget(self, slots: IntArray) -> None:
        """Nothing is kept."""

    def state(self) -> State:
        """Empty."""
        return {}

    def restore(self, state: State) -> None:
        """Only an empty state fits."""
        if state:
            raise PolicyError(f"this policy keeps no state, got keys {sorted(state)}")
