"""Baseline: SpecDec++, which stops drafting when a rejection among the drafts is likely.

Rule: with a_j the predicted acceptance of draft j given that earlier drafts are accepted, drafting
ends when 1 - prod_j a_j > h, the optimum of the paper's Markov decision process for the right h.
Each round drafts at least `min_drafts`.

Source: arXiv 2405.19715, theorem on the threshold; specdec_pp/hf_generation.py of
Kaffaljidhmah2/SpecDec_pp (schedule `ada`, `--bound 2 20`). Granularity: L2; the original serves
one request. Without the confidence signal: the engine's own K.

Stand-in: the original's a_j comes from a head trained offline on hidden states, which the contract
does not carry. Here a_j = sigmoid(slope logit(max q_j) + intercept), by default max q_j itself.

Faults kept: the head judges draft j in the pass that makes draft j + 1, so the product lacks the
newest draft, and one more draft is made than the rule needs; load is ignored.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.parts.drafts import log_odds, sigmoid
from adaptive_spec.sim.baselines.stopping.live_stopping import (
    LiveStoppingPolicy,
    StoppingOptions,
    Stops,
)
from adaptive_spec.step import FloatArray, IntArray, Level


class SpecDecPlusPlusOptions(
    StoppingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Options of `specdec_plus_plus`."""

    h: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.7
    """Rejection probability above which drafting stops."""
    min_drafts: Annotated[int, msgspec.Meta(ge=1)] = 2
    """Fewest drafts of a round."""
    slope: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Slope of the stand-in for the trained head (log-odds)."""
    intercept: float = 0.0
    """Intercept of the stand-in for the trained head (log-odds)."""


class SpecDecPlusPlusPolicy(LiveStoppingPolicy):
    """Policy that drafts while all drafts are likely to be accepted."""

    name: ClassVar[str] = "specdec_plus_plus"
    summary: ClassVar[str] = "drafts until a rejection is likely, SpecDec++"
    Options: ClassVar[type[msgspec.Struct]] = SpecDecPlusPlusOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="SpecDec++, arXiv 2405.19715; Kaffaljidhmah2/SpecDec_pp specdec_pp/hf_generation.py",
        granularity=Level.FULL,
        faults="judges a draft one pass late; ignores load; the trained head is replaced by the "
        "drafter's maximum probability",
    )
    needs_confidence = True

    def __init__(self, options: SpecDecPlusPlusOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options

    def stops(self, slots: IntArray, confidence: FloatArray, entropy: FloatArray) -> Stops:
        """Stop after position j when the earlier drafts probably include a rejection."""
        options = self._options
        accepted = sigmoid(options.slope * log_odds(confidence) + options.intercept)
        accepted[np.isnan(confidence)] = 1.0
        before = np.ones_like(accepted)
        np.cumprod(accepted[:, :-1], axis=1, out=before[:, 1:])
        goes_on = 1.0 - before <= options.h
        goes_on[:, : options.min_drafts - 1] = True
        return Stops(np.ones_like(goes_on), goes_on)
