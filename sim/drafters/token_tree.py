"""SpecInfer: a draft model proposes a token tree of fixed form; its best K nodes are verified."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.pricing import draft_cost
from adaptive_spec.sim.drafters.ranks import DRAFT_MODEL_TAIL, true_ranks
from adaptive_spec.sim.drafters.static_tree import (
    MOST_NODES,
    Tree,
    in_order_of_probability,
    rank_probabilities,
    sizes_to_reach,
)
from adaptive_spec.sim.hardware.base import Hardware

LLAMA_68M_OVER_7B = 0.068 / 6.738
"""Parameters of the paper's drafter over its target's."""
LLAMA_68M_KV_OVER_7B = (2 * 768) / (32 * 4096)
"""KV of both: layers times width."""
FIRST_CHOICE = 0.66
"""Accuracy of the draft model's first choice (SpecInfer, table 1: mean of five prompt sets)."""


class TokenTree(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """On one level the tree splits into `width` branches; elsewhere it goes on with first choices.

    Attributes:
        width: branches.
        depth: levels, and passes of every proposal.
        split: level on which it branches, from 1.
        share: the draft model's parameters over the target's.
        kv: its KV bytes per token over the target's.
    """

    width: Annotated[int, msgspec.Meta(ge=1, le=16)] = 3
    depth: Annotated[int, msgspec.Meta(ge=1, le=16)] = 8
    split: Annotated[int, msgspec.Meta(ge=1, le=16)] = 3
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = LLAMA_68M_OVER_7B
    kv: Annotated[float, msgspec.Meta(ge=0)] = LLAMA_68M_KV_OVER_7B

    name: ClassVar[str] = "token_tree"
    source: ClassVar[str] = (
        "SpecInfer, arXiv 2305.09781: widths 1 1 3 1 1 1 1 1, LLaMA-68M for LLaMA-7B"
    )
    depth_follows: ClassVar[bool] = False

    def tree(self) -> Tree:
        """All its nodes, most probable first."""
        widths = [1] * self.depth
        widths[min(self.split, self.depth) - 1] = self.width
        nodes = [
            node
            for level in range(1, self.depth + 1)
            for node in product(*(range(width) for width in widths[:level]))
        ]
        probabilities = rank_probabilities(
            [FIRST_CHOICE] * self.depth, [DRAFT_MODEL_TAIL] * self.depth, self.width
        )
        return in_order_of_probability(nodes, probabilities)[:MOST_NODES]

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """A pass of the draft model per level, always all of them."""
        return draft_cost(
            self.name,
            hardware,
            self.share,
            tokens_per_request=len(self.tree()) / self.depth,
            fixed_passes=self.depth,
        )

    def most_drafts(self, depth: int) -> int:
        """The nodes of the tree."""
        return len(self.tree())

    def weight_bytes(self, hardware: Hardware) -> float:
        """The draft model's."""
        return self.share * hardware.weight_bytes

    def kv_share(self, hardware: Hardware) -> float:
        """The draft model's."""
        return self.kv

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """The true path's place in the tree, from chain data."""
        if data.tree_sizes is not None:
            return data
        ranks = true_ranks(data, min(self.depth, data.depth), DRAFT_MODEL_TAIL, random)
        return replace(data, tree_sizes=sizes_to_reach(ranks, self.tree()), confidence=None)
