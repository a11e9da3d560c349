"""Multi-token prediction (MTP): layers trained with the target that predict further tokens."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter, limited_to
from adaptive_spec.sim.drafters.pricing import TargetShape, draft_cost, network_share
from adaptive_spec.sim.hardware.base import Hardware


class Mtp(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each draft costs one layer of the target's kind and the shared LM head.

    Attributes:
        modules: layers that come with the model; DeepSeek-V3 has one.
        reuse: the modules are run again for deeper drafts, as vLLM and SGLang do. Otherwise K
            is at most the number of modules.
    """

    modules: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    reuse: bool = True

    name: ClassVar[str] = "mtp"
    source: ClassVar[str] = (
        "DeepSeek-V3, arXiv 2412.19437: one module, second token accepted 85 to 90 %"
    )

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """One of L layers and the head for each draft."""
        return draft_cost(self.name, hardware, network_share(hardware, layers=1))

    def most_drafts(self, depth: int) -> int:
        """As many as the modules, unless they are run again."""
        return depth if self.reuse else min(depth, self.modules)

    def weight_bytes(self, hardware: Hardware) -> float:
        """A layer per module; embedding and head are the target's."""
        return self.modules * TargetShape.of(hardware).layer * hardware.weight_bytes

    def kv_share(self, hardware: Hardware) -> float:
        """A layer's per module."""
        return self.modules / hardware.layers

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """Capped at the modules where they are not run again."""
        return limited_to(data, self.most_drafts(data.depth))
