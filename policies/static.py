"""Static K: the same K for every request and step, the engines' default.

With `uniform_fraction` some steps draw one K of all that the engine can run. A trace of them says
what each K is worth (`adaptive-spec evaluate`): the probability of the K that ran is recorded.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan, nearest_allowed
from adaptive_spec.step import Capability, FloatArray, IntArray, Mode, SpecPlan, StepContext


class StaticOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `static`."""

    k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """K for all requests: the largest that the engine can run up to this one; absent: the engine's
    own K, by batch size where the engine has a table."""
    uniform_fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of the steps that draw one K of all; above 0, propensities are recorded."""


class StaticPolicy(StatelessPolicy):
    """Policy with one fixed K for all requests."""

    name: ClassVar[str] = "static"
    summary: ClassVar[str] = "one fixed K (option k; default: the engine's own)"
    Options: ClassVar[type[msgspec.Struct]] = StaticOptions

    def __init__(self, options: StaticOptions, *, seed: int = 0) -> None:
        self._k = options.k
        self._uniform = options.uniform_fraction
        self._random = np.random.default_rng(seed)
        self._drafted: tuple[int, FloatArray] | None = None
        """The K drafted for, and the probabilities it was drawn with."""

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
        if self._uniform > 0.0:
            return self._drawn(context, wanted)
        return fixed_plan(context, wanted, f"static {wanted}")

    def _drawn(self, context: StepContext, wanted: int) -> SpecPlan:
        """Verify the K drawn in the step before and draft for the next one."""
        values = np.array(context.capability.uniform_values, dtype=np.int64)
        usual = nearest_allowed(wanted, context.capability.uniform_values)
        chances = self._uniform / len(values) + (1.0 - self._uniform) * (values == usual)
        drawn = int(self._random.choice(values, p=chances / chances.sum())), chances
        steers = context.capability.steers_depth
        k, chances = (self._drafted or drawn) if steers else drawn
        self._drafted = drawn
        limits = context.draft_possible if steers else context.draft_available
        verify = np.minimum(context.draft_available, k)
        known = not (verify != np.minimum(limits, k)).any()
        off = drawn[0] == 0 and not verify.any()
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=drawn[0],
            # OFF-cold would leave live requests without drafter state for the next K.
            mode=Mode.OFF_WARM if off else Mode.ON,
            reason=f"drawn {k}",
            measures=k != usual,
            propensity=propensities(chances, values, limits, verify) if known else None,
        )


def propensities(
    chances: FloatArray, values: IntArray, limits: IntArray, verify: IntArray
) -> FloatArray:
    """Return [B] the probability of each request's K.

    Several K may give the same K_i to a request with few drafts: their probabilities add. The
    probability of the whole batch's K is that of the request with the most room, the smallest.

    Args:
        chances: [A] probabilities of the K values; one draw per batch.
        values: [A] K values.
        limits: [B] drafts available to each request, whichever K is drawn.
        verify: [B] K_i that resulted from the draw.
    """
    outcome = np.minimum(limits[:, None], values)
    return np.asarray((outcome == verify[:, None]) @ chances, dtype=np.float64)
