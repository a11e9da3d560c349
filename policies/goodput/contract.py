"""What a planned policy has to bring: hazards that can be widened and saved, and some options."""

from __future__ import annotations

from typing import Any, Protocol

from adaptive_spec.step import IntArray


class Hazards(Protocol):
    """What the base asks of hazards; `AcceptanceModel` has it."""

    @property
    def observations(self) -> IntArray:
        """[Kmax] times each position has been observed."""
        ...

    def widen(self) -> None:
        """Trust the past less."""
        ...

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        ...

    def state(self) -> dict[str, Any]:
        """JSON-compatible."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state. Raises PolicyError if it does not fit."""
        ...


class PlannedOptions(Protocol):
    """The options every such policy has."""

    @property
    def profile(self) -> str | None:
        """File with a cost profile to start from."""
        ...

    @property
    def explore(self) -> bool:
        """Explore deeper drafts and unmeasured K."""
        ...

    @property
    def latency_strength(self) -> float:
        """Weight of requests that are behind their TPOT target."""
        ...
