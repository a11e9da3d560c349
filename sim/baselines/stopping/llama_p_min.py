"""Baseline: llama.cpp's `--spec-draft-p-min`, which stops at an unlikely token.

Rule: the draft is the likeliest token; drafting ends at the first position with a maximum
probability below p_min, and that position's draft is dropped. At most n_max drafts.

Source: `common_speculative_impl_draft_simple::draft` in common/speculative.cpp of
ggml-org/llama.cpp; defaults p_min = 0 (never stops) and n_max = 3 (16 before #23269), here
`max_drafts`. Granularity: L2, per sequence. Without the confidence signal: the engine's own K.

Faults kept: p_min is one constant for every load and text; the pass that stops is wasted. Left out:
n_min, which drops a draft that turned out short; its default is 0, and with sampled drafts it would
bias output. Upstream takes the probability among the ten likeliest tokens, so it is slightly above
the maximum probability used here.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.stopping.confidence_stop import (
    ConfidenceStop,
    StoppingOptions,
    before_the_first,
)
from adaptive_spec.step import FloatArray, IntArray, Level


class LlamaPMinOptions(StoppingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `llama_p_min`."""

    max_drafts: Annotated[int, msgspec.Meta(ge=1)] | None = 3
    """Most drafts per request and step (n_max); null, or above Kmax: Kmax."""
    p_min: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Maximum probability below which drafting stops."""


class LlamaPMinPolicy(ConfidenceStop):
    """Policy that drafts while the likeliest token is likely enough."""

    name: ClassVar[str] = "llama_p_min"
    summary: ClassVar[str] = "drafts until the likeliest token is below p_min, llama.cpp"
    Options: ClassVar[type[msgspec.Struct]] = LlamaPMinOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="llama.cpp common/speculative.cpp, --spec-draft-p-min and --spec-draft-n-max",
        granularity=Level.FULL,
        faults="one constant; the pass that stops is wasted; ignores load and acceptance; "
        "n_min is left out",
    )

    def __init__(self, options: LlamaPMinOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._p_min = options.p_min

    def kept(self, confidence: FloatArray) -> IntArray:
        """Stop at, and drop, a position with a maximum probability below p_min."""
        return before_the_first(confidence < self._p_min)  # nan is no reason to stop
