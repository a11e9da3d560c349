"""Base of baselines that stop drafting early by the drafter's own distributions.

After each pass of the drafter the rule decides, per request, whether this position is kept and
whether drafting goes on; all kept drafts are then verified. The admission of a position uses the
distributions up to it and values of finished rounds only, so sampled output keeps its distribution.

* The same rule applies to the available drafts before verification. After live stops this changes
  nothing; after a full draft, on an engine without live stops, K_i is the rule's stopping point.
  Adaptive values are frozen between the two, so that no draft is dropped.
* Level UNIFORM: the largest K of the batch's requests, rounded *up* to the engine's ladder.
  Rounding down would let a position depend on deeper ones and bias sampled output.
* Without the signal that the rule needs, the engine's own K runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan, nearest_allowed
from adaptive_spec.sim.engine.early_stop import DraftPass, DraftVerdict
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


class Stops(NamedTuple):
    """Decisions of a rule on J draft positions of B requests.

    Attributes:
        keeps: [B, J] keep the position, given that drafting reached it.
        goes_on: [B, J] go on drafting after the position; only where it is kept.
    """

    keeps: BoolArray
    goes_on: BoolArray


class LiveStoppingPolicy(StatelessPolicy, ABC):
    """Policy that drafts until a rule stops it.

    Subclasses implement `stops`; adaptive ones also `freeze`.
    """

    needs_confidence = False
    needs_entropy = False

    def __init__(self, options: StoppingOptions, *, seed: int = 0) -> None:
        del seed
        self._max_drafts = options.max_drafts

    @abstractmethod
    def stops(self, slots: IntArray, confidence: FloatArray, entropy: FloatArray) -> Stops:
        """Apply the rule to [B, J] maximum probability and entropy (nats); nan where unknown."""

    def freeze(self, slots: IntArray) -> None:
        """Fix adaptive values before the drafts of the next step."""

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan K_i: the available drafts that the rule keeps."""
        capability = context.capability
        confidence, entropy = context.confidence, context.entropy
        missing = (self.needs_confidence and confidence is None) or (
            self.needs_entropy and entropy is None
        )
        if missing or (confidence is None and entropy is None):
            return fixed_plan(context, context.engine_k, "no signal of the drafter, engine's K")
        unknown = np.full((context.batch_size, capability.max_draft_tokens), np.nan)
        stops = self.stops(
            context.slots,
            unknown if confidence is None else confidence,
            unknown if entropy is None else entropy,
        )
        most = capability.max_draft_tokens
        if self._max_drafts is not None:
            most = min(most, self._max_drafts)
        depth = nearest_allowed(most, capability.uniform_values)
        verify = np.minimum(np.minimum(kept(stops), most), context.draft_available)
        if capability.level is Level.UNIFORM:
            wanted = int(verify.max(initial=0))
            rungs = capability.uniform_values
            depth = max(depth, next((k for k in rungs if k > 0), 0))
            k = next((rung for rung in rungs if rung >= wanted), rungs[-1])
            verify = np.minimum(context.draft_available, k)
        self.freeze(context.slots)
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=depth,
            mode=Mode.ON,
            reason="drafted until the rule stopped",
        )

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """Apply the rule to the position just drafted."""
        stops = self.stops(draft.slots, draft.confidence, draft.entropy)
        admitted = draft.drafting & stops.keeps[:, -1]
        return DraftVerdict(admitted, admitted & stops.goes_on[:, -1])


def kept(stops: Stops) -> IntArray:
    """Return [B] the number of leading kept drafts."""
    reached = np.ones_like(stops.keeps)
    np.logical_and.accumulate(stops.goes_on[:, :-1], axis=1, out=reached[:, 1:])
    count: IntArray = np.count_nonzero(reached & stops.keeps, axis=1).astype(np.int64)
    return count
