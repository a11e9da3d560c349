"""Drafters that copy what followed the last few tokens before, and Lookahead decoding.

N-gram drafting (prompt lookup) proposes only where the last tokens occurred before; a match that
leads nowhere still makes the target verify K drafts, which is what it costs in a full batch.

Suffix decoding proposes the more the longer the match: m matched tokens propose at most factor m,
rounded down, which may be none,
and match and proposal together are at most as long as the suffix tree is deep. The data don't hold
the text, so the length of the match at a position is modelled as the longer of the run of tokens
right before it that the n-gram list could have drafted, and a fresh match, geometric, longer on
average where it leads to an accepted token.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData, LookedUp
from adaptive_spec.sim.drafters.base import DraftCost, Drafter, limited_to
from adaptive_spec.sim.drafters.chains import DraftModel, Eagle, Mtp
from adaptive_spec.sim.drafters.pricing import measured_cost
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.step import IntArray

SHARE_OF_VERIFY = 0.005
"""Time of n-gram drafting over that of the target's pass. Figures of this module that name no
source are assumptions."""
MATCH_WITHOUT_GAIN = 0.4
"""P(something matches | nothing would be accepted)."""

MANY_REQUESTS = 64
SECONDS_PER_TOKEN = 20e-6
"""CPU time of a speculated token (Snowflake, Arctic Inference)."""
SUFFIX_MATCH_WITHOUT_GAIN = 0.9
"""P(it proposes | nothing would be accepted)."""
TREE_DEPTH = 24
"""vLLM's default."""
TYPICAL_PROPOSAL = 4
"""Tokens per proposal."""
FRESH_MATCH = 3.0
FRESH_MATCH_WITHOUT_GAIN = 1.5
"""Mean length of fresh matches, with and without an accepted token."""
Size = Annotated[int, msgspec.Meta(ge=1, le=256)]
_MODELS: dict[str, Drafter] = {"eagle": Eagle(), "mtp": Mtp(), "draft_model": DraftModel()}


class TextCopy(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drafter of tokens that occurred before: it keeps no state and has no passes of its own."""

    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False
    depth_follows: ClassVar[bool] = False
    acceptance_list: ClassVar[str] = "ngram"


class Ngram(TextCopy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drafter of K drafts where the last tokens occurred before, of none elsewhere.

    Attributes:
        match: P(something matches | nothing would be accepted). Text that repeats itself has
            more, a proposer that asks for longer matches has less.
    """

    match: Annotated[float, msgspec.Meta(ge=0, le=1)] = MATCH_WITHOUT_GAIN

    name: ClassVar[str] = "ngram"
    source: ClassVar[str] = "prompt lookup of vLLM; cost and matches: round figures of this project"

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """A small share of the target's pass, linear in the batch."""
        measured = measured_cost(self.name, hardware)
        if measured is not None:
            return measured
        one = hardware.verify_seconds(1, 1, 0, 0, 0)
        many = hardware.verify_seconds(MANY_REQUESTS, MANY_REQUESTS, 0, 0, 0)
        per_request = max(0.0, many - one) / (MANY_REQUESTS - 1)
        return DraftCost(
            proposal=SHARE_OF_VERIFY * (one - per_request),
            proposal_per_request=SHARE_OF_VERIFY * per_request,
        )

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """Add the proposals: wherever a draft is accepted, and by chance elsewhere."""
        if data.proposed is not None:
            return data
        matches = random.random(len(data.accepted)) < self.match
        proposes = (data.accepted > 0) | matches
        return replace(data, proposed=np.where(proposes, data.depth, 0).astype(np.uint8))


class Suffix(TextCopy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drafter that proposes nearly always, but little where the match is short.

    Attributes:
        factor: tokens proposed per token matched.
        match: P(it proposes | nothing would be accepted).
    """

    factor: Annotated[float, msgspec.Meta(gt=0, le=24)] = 1.0
    match: Annotated[float, msgspec.Meta(ge=0, le=1)] = SUFFIX_MATCH_WITHOUT_GAIN

    name: ClassVar[str] = "suffix"
    source: ClassVar[str] = "SuffixDecoding, arXiv 2411.04975; vLLM's defaults (factor 1, depth 24)"

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """CPU time per request."""
        by_token = DraftCost(proposal_per_request=SECONDS_PER_TOKEN * TYPICAL_PROPOSAL)
        return measured_cost(self.name, hardware) or by_token

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
        length = np.minimum(most_proposed(matched, self.factor), min(longest, data.depth))
        proposes = gains | (random.random(len(data.accepted)) < self.match)
        return replace(data, proposed=np.where(proposes, length, 0).astype(np.uint8))


class Lookahead(TextCopy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The target guesses n-grams by itself, in the same pass that verifies them.

    Every pass computes a window of W columns of N - 1 tokens (the n-grams of later steps) and up to
    G guesses of N - 1 tokens that begin with the last token. K is the length to which guesses are
    verified; the window and the other guesses ride along as extra tokens.

    Nobody has published its acceptance position by position, so the n-gram list stands in. That is
    right on average over Spec-Bench (see `source`) but not for each task: the gain is understated
    where little is copied and overstated where much is.

    Attributes:
        window: W.
        ngram: N.
        guesses: G.
    """

    window: Size = 15
    ngram: Annotated[int, msgspec.Meta(ge=2, le=32)] = 5
    guesses: Size = 15

    name: ClassVar[str] = "lookahead"
    source: ClassVar[str] = (
        "Lookahead decoding, arXiv 2402.02057; hao-ai-lab/LookaheadDecoding: W 15, N 5, G 15 for "
        "7B on A100. Acceptance follows the n-gram list: on Spec-Bench both methods emit as much "
        "per step (Vicuna-7B: 1.64 lookahead, 1.73 prompt lookup)"
    )

    def extra_tokens(self, k: int) -> int:
        """W (N - 1) of the window and K of each guess but the one counted as drafts."""
        if k == 0:  # the window is left out: the next guesses come from n-grams found before
            return 0
        return self.window * (self.ngram - 1) + (self.guesses - 1) * min(k, self.ngram - 1)

    def most_drafts(self, depth: int) -> int:
        """A guess has N - 1 tokens."""
        return min(depth, self.ngram - 1)

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """At most N - 1 are accepted."""
        return limited_to(data, self.ngram - 1)


class Hybrid(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chain of a model, or one that was looked up: a step takes one of the two per request.

    The look-up runs on the host while the accelerator works and costs it nothing. Where the data
    do not hold its proposals, they are modelled as suffix decoding's.

    Attributes:
        model: the drafter that has a cost.
    """

    model: Literal["eagle", "mtp", "draft_model"] = "eagle"

    name: ClassVar[str] = "hybrid"
    source: ClassVar[str] = "the model drafter's cost; look-ups as of SuffixDecoding, 2411.04975"
    acceptance_list: ClassVar[str] = "eagle+ngram"

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """The model's."""
        return _MODELS[self.model].cost_on(hardware)

    def weight_bytes(self, hardware: Hardware) -> float:
        """The model's."""
        return _MODELS[self.model].weight_bytes(hardware)

    def kv_share(self, hardware: Hardware) -> float:
        """The model's."""
        return _MODELS[self.model].kv_share(hardware)

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """The model's structure, and proposals of the look-up where they were not recorded.

        Raises DataError for data without a second source.
        """
        found = data.lookup
        if found is None:
            raise DataError(
                f"{data.name}: no list of a look-up; drafter `hybrid` needs rows with "
                "`eagle` and `ngram`, accepted lengths of both for the same text"
            )
        data = _MODELS[self.model].shape(data, random)
        if found.proposed is not None and found.match is not None:
            return data
        copied = replace(
            data, accepted=found.right, proposed=None, confidence=None, lookup=None, depth=254
        )
        proposed = Suffix().shape(copied, random).proposed
        assert proposed is not None
        match = np.where(proposed, np.maximum(matched_before(copied), 1), 0)
        return replace(
            data,
            lookup=LookedUp(
                np.minimum(found.right, proposed),
                proposed,
                np.minimum(match, 255).astype(np.uint8),
            ),
        )


def most_proposed(matched: IntArray, factor: float) -> IntArray:
    """Return the most tokens that Arctic Inference 0.3 proposes after so many matched ones."""
    # csrc/suffix_decoding/suffix_tree.cc: the product has single precision.
    most: IntArray = (matched.astype(np.float32) * np.float32(factor) + 1e-6).astype(np.int64)
    return most


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
