"""Self-speculation: the target's first layers draft, its own LM head reads them out early."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.pricing import draft_cost, network_share
from adaptive_spec.sim.hardware.base import Hardware


class EarlyExit(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Neither weights nor KV of its own: verification computes the same first layers.

    That verification can take over the KV of the layers already run is not credited: engines
    that batch requests run the whole target.

    Attributes:
        layers: share of the target's layers that draft.
    """

    layers: Annotated[float, msgspec.Meta(gt=0, le=1)] = 8 / 32

    name: ClassVar[str] = "early_exit"
    source: ClassVar[str] = (
        "LayerSkip, arXiv 2404.16710; facebookresearch/LayerSkip: exit after layer 8 of 32 for "
        "Llama-2-7B"
    )
    # A step without drafts leaves the KV of all layers in place, so nothing falls behind.
    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """That share of the layers, and the LM head, for each draft."""
        share = network_share(hardware, layers=self.layers * hardware.layers)
        return draft_cost(self.name, hardware, min(1.0, share))
