"""Drafters of plain chains: a smaller model, EAGLE, the target's own layers, MTP, blocks, none."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter, limited_to
from adaptive_spec.sim.drafters.pricing import TargetShape, draft_cost, network_share
from adaptive_spec.sim.hardware.base import Hardware


class NoDrafter(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drafter without drafts, cost or memory."""

    name: ClassVar[str] = "none"
    source: ClassVar[str] = "autoregressive decoding"
    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False
    depth_follows: ClassVar[bool] = False

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """Return the records with nothing drafted."""
        nothing = np.zeros(len(data.accepted), dtype=np.uint8)
        return replace(data, proposed=nothing, tree_sizes=None, confidence=None)


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


class Eagle(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """EAGLE and EAGLE-3, as vLLM and SGLang (topk 1) serve them: one layer and the target's head.

    EAGLE-3 has a head of its own of 32,000 tokens: a cheaper pass, somewhat more memory.

    Attributes:
        head: share of the target's vocabulary head that a pass computes; EAGLE-3 for Llama-3 has
            32,000 of 128,256 entries, a quarter.
    """

    head: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0

    name: ClassVar[str] = "eagle"
    source: ClassVar[str] = (
        "EAGLE, arXiv 2401.15077; EAGLE-3, arXiv 2503.01840; measured cost where the profile has it"
    )

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """One of L layers and the head for each draft."""
        share = network_share(hardware, layers=1, heads=self.head)
        return draft_cost(self.name, hardware, share)

    def weight_bytes(self, hardware: Hardware) -> float:
        """One layer; embedding and head are the target's."""
        return TargetShape.of(hardware).layer * hardware.weight_bytes

    def kv_share(self, hardware: Hardware) -> float:
        """One layer's."""
        return 1.0 / hardware.layers


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
        """Cost of that share of the layers, and of the LM head, for each draft."""
        share = network_share(hardware, layers=self.layers * hardware.layers)
        return draft_cost(self.name, hardware, min(1.0, share))


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
        """The number of modules, unless they are run again."""
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
