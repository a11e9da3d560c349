"""Baseline: the heuristic schedule of Hugging Face transformers: +2 on full acceptance, else -1.

Rule: K <- K + 2 after a round whose drafts and bonus token were all emitted, otherwise
K <- max(1, K - 1). An accepted end of text takes the place of the bonus token: K - 1. A round that
has no room for a draft counts as fully accepted; one whose drafts were not made is left out, as the
original has none.

Source: `AssistedCandidateGenerator.update_candidate_strategy` in generation/candidate_generator.py
of transformers 5.19 (`num_assistant_tokens_schedule` "heuristic", or "heuristic_transient";
`num_assistant_tokens` 20). Granularity: L2; the original serves one request, here each request has
its own K. A new request starts with the K of the request that ended last, or afresh with
`transient`. D is the largest K of the batch; an engine with one K per batch runs the rounded mean.
The engine's Kmax caps what is drafted, not K itself, which goes on rising.

Faults kept: one rejected draft in a row of twenty counts like twenty; load is ignored; K >= 1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.per_request import integers
from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.baselines.parts.drafts import per_request_plan
from adaptive_spec.step import FinishedStep, IntArray, Level, SpecPlan, StepContext


class HfHeuristicOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `hf_heuristic`."""

    initial: Annotated[int, msgspec.Meta(ge=1)] = 20
    """K of the first request."""
    transient: bool = False
    """Start every request with `initial`."""


class HfHeuristicPolicy(StatelessPolicy):
    """Policy of K + 2 after full acceptance, K - 1 otherwise."""

    name: ClassVar[str] = "hf_heuristic"
    summary: ClassVar[str] = "K + 2 when all drafts were accepted, else K - 1, transformers"
    Options: ClassVar[type[msgspec.Struct]] = HfHeuristicOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="transformers generation/candidate_generator.py, schedule heuristic",
        granularity=Level.FULL,
        faults="one rejection counts like many; ignores load; never off",
    )

    def __init__(self, options: HfHeuristicOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._start = options.initial
        self._k = integers(0)  # 0: not started

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan each request's own K."""
        most = context.capability.max_draft_tokens
        k = np.minimum(self._current(context.slots), most)
        start = min(self._start, most)
        mean = round(float(k.mean())) if k.size else start
        return per_request_plan(context, k, "2 more or 1 less", empty=start, uniform=mean)

    def observe(self, step: FinishedStep) -> None:
        """Update K of the requests that verified drafts, or had no room for one."""
        outcome = step.outcome
        counts = (outcome.verified > 0) | (step.context.draft_possible == 0)
        slots, accepted = outcome.slots[counts], outcome.accepted[counts]
        k = self._current(slots)
        full = (accepted == outcome.verified[counts]) & (outcome.emitted[counts] > accepted)
        self._k[slots] = np.where(full, k + 2, np.maximum(k - 1, 1))

    def forget(self, slots: IntArray) -> None:
        """Keep the last K of an ended request for the next one, unless `transient`."""
        if not self._options.transient:
            begun = self._k[slots]
            begun = begun[begun > 0]
            if begun.size:
                self._start = int(begun[-1])
        self._k.reset(slots)

    def _current(self, slots: IntArray) -> IntArray:
        k = self._k[slots]
        return np.where(k > 0, k, self._start)
