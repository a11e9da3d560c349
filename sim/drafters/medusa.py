"""Medusa: heads on the target's last hidden state propose several positions at once.

The heads don't see each other's tokens. Whether a head is right depends on how predictable its
token is, which the acceptance data say, and on how far ahead it looks: where a drafter that sees
its own drafts is right, head j is right with probability accuracy_j / reference, and nowhere else.
The data must therefore be those of such a drafter (a chain of EAGLE's kind), not Medusa's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.eagle import CHAIN_HAZARDS
from adaptive_spec.sim.drafters.pricing import TargetShape, draft_cost
from adaptive_spec.sim.drafters.ranks import NEVER, RankTail, true_path
from adaptive_spec.sim.drafters.static_tree import (
    MOST_NODES,
    Tree,
    best_tree,
    rank_probabilities,
    sizes_to_reach,
)
from adaptive_spec.sim.hardware.base import Hardware

HEAD_ACCURACY = (0.60, 0.28, 0.19, 0.12)
"""First choices of heads 1..4 on chat. Head 1 is published; heads 2..4 were fitted to the order in
which the published tree of 63 nodes was grown from the heads' accuracies (7 % of its node pairs
stay in the wrong order). Not fitted to any acceptance data."""
HEAD_TAILS = (
    RankTail(0.43, "head 1: .60 first choice, over .80 within the first five (Medusa's blog post)"),
    *[RankTail(0.18, "fitted to the order of the published tree, see HEAD_ACCURACY")] * 3,
)
WIDTH = 10
REFERENCE = CHAIN_HAZARDS[0]
"""Accuracy, on the same kind of text, of the drafter whose data describe predictability."""


def static_tree(nodes: int) -> Tree:
    """Return the best tree of this many nodes for the published accuracies."""
    return best_tree(rank_probabilities(HEAD_ACCURACY, HEAD_TAILS, WIDTH), nodes)


class Medusa(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Four heads and a static tree. K counts nodes.

    Attributes:
        nodes: the most that are verified.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1, le=MOST_NODES)] = 63

    name: ClassVar[str] = "medusa"
    source: ClassVar[str] = (
        "Medusa, arXiv 2401.10774; FasterDecoding/Medusa, medusa_choices.py (mc_sim_7b_63)"
    )
    # The heads keep no state: the next target pass brings the hidden state they need.
    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False
    depth_follows: ClassVar[bool] = False

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """All heads in one go: each a square block and an LM head of its own."""
        share = self.weight_bytes(hardware) / hardware.weight_bytes
        return draft_cost(self.name, hardware, share, fixed_passes=1)

    def most_drafts(self, depth: int) -> int:
        """The nodes of the tree."""
        return self.nodes

    def weight_bytes(self, hardware: Hardware) -> float:
        """Per head h^2 and V h parameters."""
        shape = TargetShape.of(hardware)
        block = shape.layer / 13.0
        return len(HEAD_ACCURACY) * (block + shape.head) * hardware.weight_bytes

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """The true path's place in the tree; `accepted` counts the heads' first choices."""
        if data.tree_sizes is not None:
            return data
        ranks = head_ranks(data, random)
        first = np.cumprod(ranks == 0, axis=1).sum(axis=1).astype(np.uint8)
        return replace(
            data,
            accepted=first,
            tree_sizes=sizes_to_reach(ranks, static_tree(self.nodes)),
            confidence=None,
        )


def head_ranks(data: AcceptanceData, random: np.random.Generator) -> NDArray[np.uint8]:
    """[P, heads] rank (from 0) of each true token in the head that looks so far ahead."""
    depth = min(len(HEAD_ACCURACY), data.depth)
    path = true_path(data, depth)
    accuracy = np.array(HEAD_ACCURACY[:depth])
    right = path.hit & (random.random(path.hit.shape) < np.minimum(1.0, accuracy / REFERENCE))
    uniform = random.random(path.hit.shape)
    missed = np.stack([HEAD_TAILS[head].draw(uniform[:, head]) for head in range(depth)], axis=1)
    ranks = np.where(right, 0, missed)
    ranks[~path.known] = NEVER
    result: NDArray[np.uint8] = ranks.astype(np.uint8)
    return result
