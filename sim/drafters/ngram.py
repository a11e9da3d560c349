"""N-gram drafting (prompt lookup): copies what followed the last few tokens before.

Costs CPU time only. It proposes only where the last tokens occurred before; a match that leads
nowhere still makes the target verify K drafts, which is what n-gram drafting costs in a full batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.pricing import measured_cost
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.step import FloatArray

SHARE_OF_VERIFY = 0.005875
"""Time of n-gram drafting over that of the target's pass, Llama-3.1-8B on H100 (SpecDecode-Bench,
arXiv 2601.11580)."""
MATCH_WITHOUT_GAIN = {"sharegpt": 0.2, "cnn": 0.4, "gsm8k": 0.2, "instructcoder": 0.8}
"""P(something matches | nothing would be accepted) by data set (SpecDecode-Bench)."""
MATCH_ELSEWHERE = sum(MATCH_WITHOUT_GAIN.values()) / len(MATCH_WITHOUT_GAIN)

MANY_REQUESTS = 64


class Ngram(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drafter of K drafts where the last tokens occurred before, of none elsewhere.

    Attributes:
        match: P(something matches | nothing would be accepted). Without it: by the data set's
            name, see `MATCH_WITHOUT_GAIN`, their mean for others. A proposer that asks for longer
            matches has less: .03 to .16 follow from the counters of vLLM 0.12 on four benchmarks
            (AltriaSetsuna/speculative-decoding-empirical).
    """

    match: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None

    name: ClassVar[str] = "ngram"
    source: ClassVar[str] = "SpecDecode-Bench, arXiv 2601.11580: cost and match probabilities"
    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False
    depth_follows: ClassVar[bool] = False
    acceptance_list: ClassVar[str] = "ngram"

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
        matches = random.random(len(data.accepted)) < self._match(data)
        proposes = (data.accepted > 0) | matches
        return replace(data, proposed=np.where(proposes, data.depth, 0).astype(np.uint8))

    def _match(self, data: AcceptanceData) -> FloatArray:
        """[P] probability of a match that leads nowhere."""
        if self.match is not None:
            return np.full(len(data.accepted), self.match)
        by_record = [match_without_gain(f"{label} {data.name}") for label in data.labels]
        return np.repeat(np.array(by_record), data.lengths)


def match_without_gain(name: str) -> float:
    """The published probability for a data set that this name mentions, else their mean."""
    for known, probability in MATCH_WITHOUT_GAIN.items():
        if known in name.lower():
            return probability
    return MATCH_ELSEWHERE
