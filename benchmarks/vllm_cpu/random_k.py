"""A policy whose steps identify what each part of a step costs.

Step time depends on verified tokens N, requests B, draft depth D and context. To tell them apart
they must vary independently of each other, within each B. So D is drawn for a step, and the K of
its requests in one of three ways: none at all, one K for all, or one for each.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import IntArray, Mode, SpecPlan, StepContext


class RandomKOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None."""


class RandomKPolicy(StatelessPolicy):
    """Draws the depth of each step, and the K of each request in it."""

    name: ClassVar[str] = "random_k"
    summary: ClassVar[str] = "random K and depth, to measure costs"
    Options: ClassVar[type[msgspec.Struct]] = RandomKOptions

    def __init__(self, options: RandomKOptions, *, seed: int = 0) -> None:
        del options
        self._random = np.random.default_rng(seed)

    def plan(self, context: StepContext) -> SpecPlan:
        """A random decision within what is at hand."""
        verify = np.minimum(context.draft_available, self._wanted(context))
        depth = int(self._random.integers(0, context.capability.max_draft_tokens + 1))
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=depth,
            mode=Mode.ON if verify.any() or depth else Mode.OFF_WARM,
            reason="random",
        )

    def _wanted(self, context: StepContext) -> IntArray:
        most = context.capability.max_draft_tokens
        way = self._random.random()
        if way < 0.2:
            return np.zeros(context.batch_size, dtype=np.int64)
        if way < 0.6:
            return np.full(context.batch_size, self._random.integers(1, most + 1), dtype=np.int64)
        return self._random.integers(0, most + 1, context.batch_size, dtype=np.int64)
