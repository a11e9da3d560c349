"""EAGLE-2: a tree grown anew in every step, where the drafter is sure, deep, else wide.

Growth: the 10 best nodes of a level are expanded, each into its 10 best children; out of all
candidates the K with the best joint probability are verified. The drafter's probabilities are
modelled as calibrated, as the paper found them: first choices are right as often as their
probability says. The prior of that probability is a Beta distribution whose mean is the data's
acceptance rate at that level; given that the first choice was right or wrong it becomes
Beta(a + 1, b) or Beta(a, b + 1). Recorded confidence is used instead where the data have it.
All nodes of a level share the level's probabilities, which are those along the true path.

What this does not show: small trees as SGLang serves them. On an H200 its trees of 5 and 7 nodes
(steps 5 and 7, topk 3 and 4) emitted .91 and .87 of what a chain of the same depth did, on average
over 88 cells (SpecForge, docs/spec_bundle data); best-first trees of a calibrated drafter emit
1.01 to 1.16 of it, the more the worse the drafter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost
from adaptive_spec.sim.drafters.eagle import EagleFamily
from adaptive_spec.sim.drafters.pricing import draft_cost, network_share
from adaptive_spec.sim.drafters.ranks import EAGLE_TAIL, NEVER, TruePath, true_path
from adaptive_spec.sim.drafters.static_tree import MOST_NODES
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.step import FloatArray

CONCENTRATION = 3.0
"""a + b of the Beta prior. At an acceptance rate of .75 the probability then tells right from
wrong first choices with an AUC of .83; .84 and .88 were reported for a trained head and a logit
margin (vLLM, pull request 52228)."""
CHUNK = 4096


class Eagle2Tree(EagleFamily, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """EAGLE's layer, drafting a dynamic tree. K counts nodes.

    Attributes:
        levels: depth of the tree, and passes of every proposal.
        branching: nodes expanded on a level, and children of each.
        nodes: the most that are verified.
    """

    levels: Annotated[int, msgspec.Meta(ge=1, le=16)] = 6
    branching: Annotated[int, msgspec.Meta(ge=1, le=32)] = 10
    nodes: Annotated[int, msgspec.Meta(ge=1, le=MOST_NODES)] = 60

    name: ClassVar[str] = "eagle2_tree"
    source: ClassVar[str] = "EAGLE-2, arXiv 2406.16858 (7B: 60 nodes, depth 6, 10 per level)"
    depth_follows: ClassVar[bool] = False

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """A pass per level, always all of them, each with `branching` tokens of a request."""
        return draft_cost(
            self.name,
            hardware,
            network_share(hardware, layers=1),
            tokens_per_request=self.branching,
            fixed_passes=self.levels,
        )

    def most_drafts(self, depth: int) -> int:
        """The nodes of the tree."""
        return self.nodes

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """The place of the true path among the candidates, best joint probability first."""
        if data.tree_sizes is not None:
            return data
        depth = min(self.levels, data.depth)
        path = true_path(data, depth)
        first = first_choice_probability(data, path, random)
        missed = EAGLE_TAIL.draw(random.random(len(data.accepted)))
        token = np.minimum(np.arange(len(missed))[:, None] + np.arange(depth), len(missed) - 1)
        ranks = np.where(path.hit, 0, missed[token])
        ranks[~path.known] = NEVER
        tail = EAGLE_TAIL.shares(self.branching)
        # No later choice may look better than the first.
        floor = tail[0] / (1.0 + tail[0]) if len(tail) else 0.0
        first = np.maximum(first, floor)
        sizes = np.empty((len(data.accepted), depth), dtype=np.uint8)
        for begin in range(0, len(sizes), CHUNK):
            rows = slice(begin, begin + CHUNK)
            own = first[rows, :, None]
            probabilities = np.concatenate((own, (1.0 - own) * tail), axis=2)
            sizes[rows] = candidate_order(probabilities, ranks[rows], self.branching)
        sizes[sizes > self.nodes] = NEVER
        return replace(data, tree_sizes=sizes, confidence=None)


def first_choice_probability(
    data: AcceptanceData, path: TruePath, random: np.random.Generator
) -> FloatArray:
    """[P, depth] the drafter's probability of its first choice, level by level."""
    depth = path.hit.shape[1]
    counted = path.known.sum(axis=0)
    rate = np.clip(path.hit.sum(axis=0) / np.maximum(counted, 1), 0.02, 0.98)
    right = CONCENTRATION * rate + path.hit
    wrong = CONCENTRATION * (1.0 - rate) + ~path.hit
    drawn: FloatArray = random.beta(right, wrong)
    if data.confidence is not None:
        level = np.arange(len(data.accepted))[:, None] + np.arange(depth) - path.start
        inside = level < data.confidence.shape[1]
        recorded = data.confidence[path.start, np.minimum(level, data.confidence.shape[1] - 1)]
        drawn = np.where(inside & np.isfinite(recorded), recorded, drawn)
    return drawn


def candidate_order(
    probabilities: FloatArray, ranks: NDArray[np.uint8], branching: int
) -> NDArray[np.uint8]:
    """[P, depth] place (from 1) of the true path's nodes among all candidates, best first.

    A node counts as behind an equally probable one of an earlier level. `NEVER` where the node
    is no candidate, or further back than can be written.

    Args:
        probabilities: [P, depth, branching] of each rank, falling along the last axis.
        ranks: [P, depth] of the true tokens.
        branching: nodes expanded per level, and children of each.
    """
    positions, depth, _ = probabilities.shape
    rows = np.arange(positions)
    parents = np.ones((positions, 1))
    at = np.zeros(positions, dtype=np.int64)
    inside = np.ones(positions, dtype=np.bool_)
    levels: list[FloatArray] = []
    values, present, column = [], [], []
    for level in range(depth):
        children = (parents[:, :, None] * probabilities[:, level, None, :]).reshape(positions, -1)
        inside = inside & (ranks[:, level] < branching)
        place = at * branching + np.minimum(ranks[:, level], branching - 1)
        levels.append(children)
        values.append(children[rows, place])
        present.append(inside)
        column.append(place)
        best = np.argsort(-children, axis=1, kind="stable")[:, :branching]
        parents = np.take_along_axis(children, best, axis=1)
        expanded = best == place[:, None]
        at = expanded.argmax(axis=1)
        inside = inside & expanded.any(axis=1)
    sizes = np.full((positions, depth), NEVER, dtype=np.uint8)
    for level in range(depth):
        value = values[level][:, None]
        before = np.zeros(positions, dtype=np.int64)
        for other, children in enumerate(levels):
            ahead = children >= value if other < level else children > value
            before += np.count_nonzero(ahead, axis=1)
        same = levels[level] == value
        before += np.count_nonzero(
            same & (np.arange(same.shape[1]) < column[level][:, None]), axis=1
        )
        place = np.where(present[level], np.minimum(before + 1, NEVER), NEVER)
        sizes[:, level] = place.astype(np.uint8)
    return sizes
