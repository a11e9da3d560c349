"""Static K: the same K for every request and step, the engines' default."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.stateless import StatelessPolicy
from adaptive_spec.step import Capability, Mode, SpecPlan, StepContext


class StaticOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `static`."""

    k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """K for all requests: the largest that the engine can run up to this one; absent: the engine's
    own K, by batch size where the engine has a table."""


class StaticPolicy(StatelessPolicy):
    """One K for all requests."""

    name: ClassVar[str] = "static"
    summary: ClassVar[str] = "one fixed K (option k; default: the engine's own)"
    Options: ClassVar[type[msgspec.Struct]] = StaticOptions

    def __init__(self, options: StaticOptions, *, seed: int = 0) -> None:
        del seed
        self._k = options.k

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify k drafts of each request, or all of a request's drafts if fewer are available."""
        wanted = context.engine_k if self._k is None else self._k
        return fixed_plan(context, wanted, f"static {wanted}")


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


def nearest_allowed(k: int, ladder: tuple[int, ...]) -> int:
    """Return the largest K of an ascending ladder that is not above `k`, else its smallest."""
    return max((value for value in ladder if value <= k), default=ladder[0])
