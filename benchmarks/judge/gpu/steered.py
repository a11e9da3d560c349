"""A policy that runs the K it is told, or draws one for each step."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptive_spec import Level, Mode, SpecPlan, StepContext
from adaptive_spec.policy_helpers import StatelessPolicy

NAME = f"{__name__}:SteeredPolicy"
"""As the configuration names it. A server can be switched to it only if it started with it."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class SteeredOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run: its engine, load and drafts.

    Attributes:
        k: drafts verified of each request; None: drawn for each step, and for each request of it
            with `ragged`.
        depth: drafts made at the end of each step; None: as many as the next one may verify if
            `k` stays.
        ragged: alternate requests verify one draft more and one less than `k`.
    """

    k: Count | None = None
    depth: Count | None = None
    ragged: bool = False


class SteeredPolicy(StatelessPolicy):
    """Runs `SteeredOptions`, within what the engine allows."""

    name: ClassVar[str] = "steered"
    summary: ClassVar[str] = "for measurements: the K it is told, or a random one"
    Options: ClassVar[type[msgspec.Struct]] = SteeredOptions

    def __init__(self, options: SteeredOptions, *, seed: int = 0) -> None:
        self._options = options
        self._random = np.random.default_rng(seed)

    def plan(self, context: StepContext) -> SpecPlan:
        """The K of this step, and the depth for the next."""
        options, capability = self._options, context.capability
        k, ragged = options.k, options.ragged and capability.level is not Level.UNIFORM
        drawn = k is None
        if k is None:
            k = int(self._random.choice(capability.uniform_values))
        depth = k + options.ragged if options.depth is None else options.depth
        wanted: NDArray[np.int64] = np.full(context.batch_size, k, dtype=np.int64)
        if drawn and ragged:
            wanted = self._random.integers(0, capability.max_draft_tokens + 1, context.batch_size)
        elif ragged:
            wanted[0 : context.batch_size - 1 : 2] += 1
            wanted[1::2] -= 1
        verify = np.minimum(context.draft_available, np.maximum(wanted, 0))
        depth = min(depth, capability.max_draft_tokens)
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=depth,
            mode=Mode.ON if verify.any() or depth else Mode.OFF_WARM,
            reason="steered",
        )
