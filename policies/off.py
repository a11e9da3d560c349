"""Policy without speculation: K = 0 for all requests."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.step import SpecPlan, StepContext


class OffOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Empty options of `off`."""


class OffPolicy(StatelessPolicy):
    """K = 0 always, without a drafter pass where the engine can skip it."""

    name: ClassVar[str] = "off"
    summary: ClassVar[str] = "no speculation (K = 0)"
    Options: ClassVar[type[msgspec.Struct]] = OffOptions

    def __init__(self, options: OffOptions, *, seed: int = 0) -> None:
        del options, seed

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan K = 0 for every request, or the smallest K that the engine can run."""
        return fixed_plan(context, 0, self.name)
