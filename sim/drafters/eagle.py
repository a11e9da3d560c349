"""EAGLE and EAGLE-3: one layer on the target's features, drafting a chain or EAGLE's first tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.pricing import TargetShape, draft_cost, network_share
from adaptive_spec.sim.drafters.ranks import EAGLE_TAIL, true_ranks
from adaptive_spec.sim.drafters.static_tree import (
    Tree,
    in_order_of_probability,
    rank_probabilities,
    sizes_to_reach,
)
from adaptive_spec.sim.hardware.base import Hardware

CHAIN_HAZARDS = (0.79, 0.74, 0.72, 0.73, 0.67)
"""n-alpha, n = 0..4: Vicuna-7B on MT-Bench, greedy (EAGLE, arXiv 2401.15077, table 2)."""

CHILDREN = {
    (): 4,
    (0,): 3,
    (1,): 2,
    (2,): 2,
    (3,): 1,
    (0, 0): 3,
    (0, 1): 2,
    (0, 2): 2,
    (1, 0): 1,
    (0, 0, 0): 3,
    (0, 0, 0, 0): 2,
}
"""Children of each inner node of EAGLE's static tree, 25 nodes (SafeAILab/EAGLE, choices.py)."""


def static_tree() -> Tree:
    """EAGLE's 25 nodes; where fewer are verified, the most probable ones."""
    nodes = [(*node, rank) for node, count in CHILDREN.items() for rank in range(count)]
    tails = [EAGLE_TAIL] * len(CHAIN_HAZARDS)
    width = max(CHILDREN.values())
    return in_order_of_probability(nodes, rank_probabilities(CHAIN_HAZARDS, tails, width))


class EagleFamily(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decoder layer of the target's width and the target's LM head.

    A pass costs one of L layers plus the head; memory is one layer, since embedding and head are
    the target's own, and a layer's KV. (EAGLE-3 has a head of its own of 32,000 tokens instead
    of the full one: a cheaper pass, somewhat more memory.)
    """

    def weight_bytes(self, hardware: Hardware) -> float:
        """One layer."""
        return TargetShape.of(hardware).layer * hardware.weight_bytes

    def kv_share(self, hardware: Hardware) -> float:
        """One layer's."""
        return 1.0 / hardware.layers


class Eagle(EagleFamily, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chain, as vLLM and SGLang (topk 1) serve it.

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


class EagleTree(EagleFamily, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """EAGLE's static tree. K counts nodes, out of 25 on five levels."""

    name: ClassVar[str] = "eagle_tree"
    source: ClassVar[str] = "EAGLE, arXiv 2401.15077; SafeAILab/EAGLE, choices.py (mc_sim_7b_63)"
    depth_follows: ClassVar[bool] = False

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """A pass per level, always all of them, each with a fifth of the nodes."""
        levels = len(CHAIN_HAZARDS)
        return draft_cost(
            self.name,
            hardware,
            network_share(hardware, layers=1),
            tokens_per_request=len(static_tree()) / levels,
            fixed_passes=levels,
        )

    def most_drafts(self, depth: int) -> int:
        """The nodes of the tree."""
        return len(static_tree())

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """The true path's place in the tree, from chain data."""
        if data.tree_sizes is not None:
            return data
        depth = min(len(CHAIN_HAZARDS), data.depth)
        ranks = true_ranks(data, depth, EAGLE_TAIL, random)
        return replace(data, tree_sizes=sizes_to_reach(ranks, static_tree()), confidence=None)
