"""Base of baselines that stop drafting by the drafter's confidence.

The originals ask after each pass of the drafter. No server's draft loop can, so the whole draft is
made here, and the rule decides how much of it is verified. It admits a position by the
distributions up to it and by finished rounds only, so sampled output keeps its distribution.

* Level UNIFORM: the largest K of the batch's requests, rounded *up* to the engine's ladder.
  Rounding down would let a position depend on deeper ones and bias sampled output.
* Without the confidence signal, the engine's own K runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan, nearest_allowed
from adaptive_spec.step import (
    BoolArray,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
)


class StoppingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of every stopping rule."""

    max_drafts: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Most drafts per request and step; absent, or above the engine's Kmax: Kmax."""


class ConfidenceStop(StatelessPolicy, ABC):
    """Policy that verifies drafts until a rule on their confidence stops it."""

    def __init__(self, options: StoppingOptions, *, seed: int = 0) -> None:
        del seed
        self._max_drafts = options.max_drafts

    @abstractmethod
    def kept(self, confidence: FloatArray) -> IntArray:
        """Return [B] drafts that the rule keeps.

        Args:
            confidence: [B, Kmax] maximum probability; nan where unknown.
        """

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan K_i: the available drafts that the rule keeps."""
        capability, confidence = context.capability, context.confidence
        if confidence is None:
            return fixed_plan(context, context.engine_k, "no confidence signal, engine's K")
        most = min(capability.max_draft_tokens, self._max_drafts or capability.max_draft_tokens)
        depth = nearest_allowed(most, capability.uniform_values)
        verify = np.minimum(np.minimum(self.kept(confidence), most), context.draft_available)
        if capability.level is Level.UNIFORM:
            wanted = int(verify.max(initial=0))
            rungs = capability.uniform_values
            depth = max(depth, next((k for k in rungs if k > 0), 0))
            k = next((rung for rung in rungs if rung >= wanted), rungs[-1])
            verify = np.minimum(context.draft_available, k)
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=depth,
            mode=Mode.ON,
            reason="drafts up to where the rule stops",
        )


def before_the_first(unlikely: BoolArray) -> IntArray:
    """Return [B] positions before the first unlikely one [B, J]; J if there is none."""
    count: IntArray = np.logical_and.accumulate(~unlikely, axis=1).sum(axis=1, dtype=np.int64)
    return count
