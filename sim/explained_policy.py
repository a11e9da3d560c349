"""Policies that can tell what they expected of a step."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from adaptive_spec.policy import Policy
from adaptive_spec.step import FloatArray, Mode, StepContext


class Forecast(Protocol):
    """Expectation of a step."""

    @property
    def context(self) -> StepContext:
        """The step, with what else it costs."""
        ...

    @property
    def survival(self) -> FloatArray:
        """Probability [Kmax, B] that all drafts up to a position are accepted."""
        ...

    def seconds_of(
        self, drafts: int, depth: int, mode: Mode = Mode.ON, *, ragged: bool = False
    ) -> float:
        """Return the duration without prompts, with `context.shared_seconds`."""
        ...


@runtime_checkable
class ExplainedPolicy(Policy, Protocol):
    """A policy with beliefs about acceptance and step times."""

    @property
    def last_forecast(self) -> Forecast | None:
        """Forecast of the last step that was forecast; None before the first."""
        ...

    def explanation(self) -> dict[str, Any]:
        """Return the numbers behind the last decision, as `adaptive_spec.operation.why` reads."""
        ...

    def break_even(self) -> dict[str, Any]:
        """Return where drafts break even, as `BreakEven` in JSON; empty before the first step."""
        ...
