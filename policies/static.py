"""Static K: the same K for every request and step, the engines' default."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.errors import PolicyError
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.step import Capability, SpecPlan, StepContext


class StaticOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `static`."""

    k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """K for all requests: the largest that the engine can run up to this one; absent: the engine's
    own K, by batch size where the engine has a table."""


class StaticPolicy(StatelessPolicy):
    """Policy with one fixed K for all requests."""

    name: ClassVar[str] = "static"
    summary: ClassVar[str] = "one fixed K (option k; default: the engine's own)"
    Options: ClassVar[type[msgspec.Struct]] = StaticOptions

    def __init__(self, options: StaticOptions, *, seed: int = 0) -> None:
        del seed
        self._k = options.k

    def check_engine(self, capability: Capability) -> None:
        """Raise PolicyError if the engine cannot run this K."""
        if self._k is not None and self._k > capability.max_draft_tokens:
            raise PolicyError(
                f"`options.k`: {self._k} is more than the server's largest K, "
                f"{capability.max_draft_tokens}"
            )

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify k drafts of each request, or all of a request's drafts if fewer are available."""
        wanted = context.engine_k if self._k is None else self._k
        return fixed_plan(context, wanted, f"static {wanted}")
