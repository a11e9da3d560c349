"""Baseline: Arctic Inference's suffix decoding: K by match length, capped by batch size.

Rules: a match of m tokens proposes at most factor * m + offset drafts, as long as the proposal's
probability by frequency counts is at least `min_token_prob`. With more than `disable_by_batch_size`
requests only the first ones draft, up to that number (soft cap); from `hard_disable_by_batch_size`
on no request drafts, while the pipeline stays alive.

Source: `SuffixDecodingCache.speculate` and `effective_draft_limit` (vllm/config.py) of Arctic
Inference 0.3. Granularity: L2. For drafters that look up text, n-gram and suffix.

Stand-ins: the contract does not carry the length of the match, and need not: a look-up drafter
proposes no more than its match allows, so `draft_available` reflects the match, and all of it is
verified. Factor and offset belong to the drafter (in the simulator `suffix:factor=...`). Where a
confidence is known, its product along the draft replaces the probability by frequency counts;
otherwise only the drafter's own limit applies. The cap applies at verification, not at drafting. An
engine with one K per batch spreads the same number of drafts evenly: K N / B.

Faults kept: beyond the cap, a request's place in the batch decides whether it drafts, not its gain;
the caps are constants; acceptance is ignored.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, nearest_allowed
from adaptive_spec.sim.baselines.parts.drafts import per_request_plan, survival_of
from adaptive_spec.step import IntArray, Level, Mode, SpecPlan, StepContext


class ArcticSuffixOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `arctic_suffix`."""

    disable_by_batch_size: Annotated[int, msgspec.Meta(ge=0)] | None = 64
    """Soft cap: number of requests that draft; null: all."""
    hard_disable_by_batch_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Batch size from which no request drafts."""
    min_token_prob: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    """Least probability of a proposed draft, where a confidence is known."""


class ArcticSuffixPolicy(StatelessPolicy):
    """Policy that verifies all look-up drafts of the first N requests."""

    name: ClassVar[str] = "arctic_suffix"
    summary: ClassVar[str] = "all suffix look-up drafts of the first N requests, Arctic"
    Options: ClassVar[type[msgspec.Struct]] = ArcticSuffixOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="Arctic Inference 0.3: suffix_decoding/cache.py, vllm/config.py",
        granularity=Level.FULL,
        faults="beyond the cap only the first in the batch draft; constants; ignores acceptance; "
        "match length inferred from the available drafts",
    )

    def __init__(self, options: ArcticSuffixOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the available drafts of the requests that may draft."""
        capability, batch = context.capability, context.batch_size
        limit = self._limit(batch)
        kmax = capability.max_draft_tokens
        if capability.level is Level.UNIFORM or (limit == 0 and batch):
            k = kmax * limit // batch if batch else kmax
            wanted = np.full(batch, k, dtype=np.int64)
            return per_request_plan(context, wanted, f"{limit} of {batch} draft", empty=k)
        verify = self._likely(context)
        verify[limit:] = 0
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=nearest_allowed(kmax, capability.uniform_values),
            mode=Mode.ON,
            reason=f"{limit} of {batch} draft",
        )

    def _limit(self, batch: int) -> int:
        """Return the number of requests that may draft."""
        options = self._options
        hard, soft = options.hard_disable_by_batch_size, options.disable_by_batch_size
        if hard is not None and batch >= hard:
            return 0
        return batch if soft is None else min(batch, soft)

    def _likely(self, context: StepContext) -> IntArray:
        """Return [B] the available drafts with a sufficient probability."""
        if context.confidence is None:
            return context.draft_available.copy()
        probability = survival_of(context.confidence)
        likely = np.count_nonzero(probability >= self._options.min_token_prob, axis=1)
        verify: IntArray = np.minimum(context.draft_available, likely)
        return verify
