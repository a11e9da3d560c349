"""Block drafters (DFlash, DSpark): the whole block of drafts in one pass."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter, limited_to
from adaptive_spec.sim.drafters.pricing import TargetShape, draft_cost, network_share
from adaptive_spec.sim.hardware.base import Hardware


class Block(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A few layers of the target's width compute all positions of a block together.

    How many drafts are wanted changes nothing: the block is always drafted in full, and only
    verification can be trimmed.

    Attributes:
        block: positions of a block; one of them is the token already known.
        layers: of the drafter.
    """

    block: Annotated[int, msgspec.Meta(ge=2, le=64)] = 16
    layers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 5

    name: ClassVar[str] = "block"
    source: ClassVar[str] = (
        "DFlash, z-lab/dflash: 5 layers, block of 16 for Qwen3-8B; DSpark, arXiv 2607.05147"
    )
    depth_follows: ClassVar[bool] = False

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """One pass of its layers and the head over all positions of the block."""
        return draft_cost(
            self.name,
            hardware,
            network_share(hardware, layers=self.layers),
            tokens_per_request=self.block,
            fixed_passes=1,
        )

    def most_drafts(self, depth: int) -> int:
        """All positions of the block but the known one."""
        return min(depth, self.block - 1)

    def weight_bytes(self, hardware: Hardware) -> float:
        """Its layers; embedding and head are the target's."""
        return self.layers * TargetShape.of(hardware).layer * hardware.weight_bytes

    def kv_share(self, hardware: Hardware) -> float:
        """Its layers'."""
        return self.layers / hardware.layers

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """At most a block."""
        return limited_to(data, self.most_drafts(data.depth))
