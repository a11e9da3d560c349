"""A model drafter, and a look-up in earlier text beside it.

The look-up runs on the host while the accelerator works and costs the accelerator nothing; a step
takes one of the two for each request (`policies.planning.draft_sources`). Where the data do
not hold the text, proposals and the lengths of their matches are modelled as those of suffix
decoding (`adaptive_spec.sim.drafters.suffix`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData, LookedUp
from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.chains import DraftModel, Mtp
from adaptive_spec.sim.drafters.eagle import Eagle
from adaptive_spec.sim.drafters.suffix import Suffix, matched_before
from adaptive_spec.sim.hardware.base import Hardware

_MODELS: dict[str, Drafter] = {"eagle": Eagle(), "mtp": Mtp(), "draft_model": DraftModel()}


class Hybrid(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chain of a model, or one that was looked up.

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
