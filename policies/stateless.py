"""Base class of policies that save nothing for the next start."""

from __future__ import annotations

from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import State
from adaptive_spec.step import FinishedStep, IntArray


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
