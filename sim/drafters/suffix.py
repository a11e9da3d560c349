"""Suffix decoding: proposes from suffix trees, the more the longer the match.

A match of m tokens proposes at most factor m tokens, and the part of the match that is looked up
and the proposal together are at most as long as the tree is deep. The data don't hold the text, so
the length of the match at a position is modelled as the longer of

* the run of tokens right before it that the n-gram list could have drafted, and
* a fresh match, geometric, longer on average where it leads to an accepted token.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.pricing import measured_cost
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.step import IntArray

SECONDS_PER_TOKEN = 20e-6
"""CPU time of a speculated token (Snowflake, Arctic Inference)."""
MATCH_WITHOUT_GAIN = 0.91
"""P(it proposes | nothing would be accepted): mean of 12 runs of vLLM 0.12 on four benchmarks,
from .78 to 1, from published counters (AltriaSetsuna/speculative-decoding-empirical)."""
TREE_DEPTH = 24
"""vLLM's default."""
TYPICAL_PROPOSAL = 4
"""Tokens per proposal, the mean of the same 12 runs (1.8 to 5.4)."""
FRESH_MATCH = 3.0
FRESH_MATCH_WITHOUT_GAIN = 1.4
"""Mean length of fresh matches, with and without an accepted token: chosen so that MT-Bench's 1.8
tokens per proposal, 25 % of them with an accepted first token, come out (the same counters)."""


class Suffix(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drafter that proposes nearly always, but little where the match is short.

    Attributes:
        factor: tokens proposed per token matched.
        match: P(it proposes | nothing would be accepted).
    """

    factor: Annotated[float, msgspec.Meta(gt=0, le=24)] = 1.0
    match: Annotated[float, msgspec.Meta(ge=0, le=1)] = MATCH_WITHOUT_GAIN

    name: ClassVar[str] = "suffix"
    source: ClassVar[str] = "SuffixDecoding, arXiv 2411.04975; vLLM's defaults (factor 1, depth 24)"
    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False
    depth_follows: ClassVar[bool] = False
    acceptance_list: ClassVar[str] = "ngram"

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """CPU time per request."""
        measured = measured_cost(self.name, hardware)
        if measured is not None:
            return measured
        return DraftCost(proposal_per_request=SECONDS_PER_TOKEN * TYPICAL_PROPOSAL)

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """Add the number of tokens proposed at each position."""
        if data.proposed is not None:
            return data
        gains = data.accepted > 0
        mean = np.where(gains, FRESH_MATCH, FRESH_MATCH_WITHOUT_GAIN)
        matched = np.maximum(matched_before(data), random.geometric(1.0 / mean))
        # A match longer than this leaves less of the tree's depth to the proposal than a part of
        # it does.
        longest = math.floor(TREE_DEPTH * self.factor / (1.0 + self.factor))
        length = np.clip(np.floor(self.factor * matched), 1, min(longest, data.depth))
        proposes = gains | (random.random(len(data.accepted)) < self.match)
        return replace(data, proposed=np.where(proposes, length, 0).astype(np.uint8))


def matched_before(data: AcceptanceData) -> IntArray:
    """[P] length of the run of draftable tokens that ends right before each position."""
    draftable = data.accepted > 0
    positions = np.arange(len(draftable))
    # The last position at or before which the run was broken: a token that could not be drafted,
    # or the beginning of the record.
    broken = np.where(draftable, -1, positions + 1)
    broken[data.offsets[:-1]] = np.maximum(broken[data.offsets[:-1]], data.offsets[:-1])
    last = np.maximum.accumulate(broken)
    previous = np.concatenate(([0], last[:-1]))
    previous[data.offsets[:-1]] = data.offsets[:-1]
    run: IntArray = positions - previous
    return run
