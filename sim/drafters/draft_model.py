"""A smaller model of the same family drafts, token by token."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.pricing import draft_cost
from adaptive_spec.sim.hardware.base import Hardware

LLAMA_1B_OVER_8B = 1.236 / 8.030
"""Parameters of Llama-3.2-1B over Llama-3.1-8B (model cards)."""
LLAMA_1B_KV_OVER_8B = (16 * 8 * 64) / (32 * 8 * 128)
"""KV of both: layers times KV heads times head size (model configurations)."""


class DraftModel(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pass per draft costs the target's pass times the ratio of sizes.

    Attributes:
        share: parameters over the target's.
        kv: KV bytes per token over the target's.
    """

    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = LLAMA_1B_OVER_8B
    kv: Annotated[float, msgspec.Meta(ge=0)] = LLAMA_1B_KV_OVER_8B

    name: ClassVar[str] = "draft_model"
    source: ClassVar[str] = (
        "Leviathan et al., arXiv 2211.17192; default sizes: Llama-3.2-1B for Llama-3.1-8B"
    )

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """Each pass reads its own layers, embedding and head: its share of the target."""
        return draft_cost(self.name, hardware, self.share)

    def weight_bytes(self, hardware: Hardware) -> float:
        """Its share of the target's weights."""
        return self.share * hardware.weight_bytes

    def kv_share(self, hardware: Hardware) -> float:
        """Its own KV."""
        return self.kv
