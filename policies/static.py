"""The same K for every request and step: what engines do without us."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.stateless import StatelessPolicy
from adaptive_spec.step import Capability, Mode, SpecPlan, StepContext


class StaticOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `static`."""

    k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """K for everyone; above the engine's Kmax it is Kmax. Absent: the engine's own K."""


class StaticPolicy(StatelessPolicy):
    """One K for all."""

    name: ClassVar[str] = "static"
    summary: ClassVar[str] = "one fixed K (option k; default: the engine's own)"
    Options: ClassVar[type[msgspec.Struct]] = StaticOptions

    def __init__(self, options: StaticOptions, *, seed: int = 0) -> None:
        del seed
        self._k = options.k

    def plan(self, context: StepContext) -> SpecPlan:
        """K = k, or what the request has if that is less."""
        wanted = context.engine_k if self._k is None else self._k
        return fixed_plan(context, wanted, f"static {wanted}")


def fixed_plan(context: StepContext, wanted: int, reason: str) -> SpecPlan:
    """The same K for all, the nearest to `wanted` that the engine can run."""
    k = nearest_allowed(wanted, context.capability.uniform_values)
    return SpecPlan(
        step=context.step,
        verify=np.minimum(context.draft_available, k),
        draft_depth=k,
        mode=Mode.ON if k else off_mode(context.capability),
        reason=reason if k == wanted else f"{reason}, the engine runs {k}",
    )


def off_mode(capability: Capability) -> Mode:
    """The cheapest way to run without speculation for good: no drafter pass, where one can."""
    return Mode.OFF_COLD if capability.cold_off else Mode.OFF_WARM


def nearest_allowed(k: int, ladder: tuple[int, ...]) -> int:
    """The largest K of an ascending ladder that is not above `k`; its smallest if all are."""
    return max((value for value in ladder if value <= k), default=ladder[0])
