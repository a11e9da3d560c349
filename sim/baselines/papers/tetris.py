"""Baseline: TETRIS, a fixed number of verified drafts, the likeliest of the batch.

Rule: each request drafts `extra_drafts` more than the base K; of all drafts of the batch, the rule
verifies the C = B * (Kmax - extra_drafts) with the largest cumulative draft probability. K_i is the
last position of request i among them. Below `turn_on_batch_size`: the base K for all.

Source: arXiv 2502.15197; `select_proposals_no_priority` in vllm/spec_decode/tetris.py and its
caller in spec_decode_worker.py of ZhaoxuanWu/Tetris. Granularity: L1. Without the confidence
signal, and on an engine with one K per batch: the base K for all.

For greedy drafts only: the original ranks by the probability of the *drafted* token, so a sampled
draft influences its own verification. The contract carries the maximum probability, which is the
same number for greedy drafts.

Faults kept: C ignores load and acceptance; draft probability stands for acceptance; the extra
drafts cost time at every load.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.sim.baselines.parts.drafts import most_likely, survival_of
from adaptive_spec.step import Level, Mode, SpecPlan, StepContext


class TetrisOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `tetris`."""

    extra_drafts: Annotated[int, msgspec.Meta(ge=0)] = 1
    """Drafts per request beyond the base K; the base K is Kmax minus these, at least 1."""
    turn_on_batch_size: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Smallest batch that is ranked."""


class TetrisPolicy(StatelessPolicy):
    """Policy that verifies a fixed number of the batch's likeliest drafts."""

    name: ClassVar[str] = "tetris"
    summary: ClassVar[str] = "verifies a fixed number of the batch's likeliest drafts, TETRIS"
    Options: ClassVar[type[msgspec.Struct]] = TetrisOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="TETRIS, arXiv 2502.15197; ZhaoxuanWu/Tetris vllm/spec_decode/tetris.py",
        granularity=Level.VERIFY,
        faults="capacity ignores load and acceptance; draft probability stands for acceptance; "
        "extra drafts cost time at every load",
        greedy_drafts_only=True,
    )

    def __init__(self, options: TetrisOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the C likeliest drafts."""
        capability, batch = context.capability, context.batch_size
        base = max(capability.max_draft_tokens - self._options.extra_drafts, 1)
        ranked = batch >= self._options.turn_on_batch_size
        if context.confidence is None or capability.level is Level.UNIFORM or not ranked:
            return fixed_plan(context, base, f"base {base}")
        survival = survival_of(context.confidence)
        return SpecPlan(
            step=context.step,
            verify=most_likely(survival, context.draft_available, base * batch),
            draft_depth=capability.max_draft_tokens,
            mode=Mode.ON,
            reason=f"the {base * batch} likeliest",
        )
