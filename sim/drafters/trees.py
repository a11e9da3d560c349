"""Token trees: EAGLE's and EAGLE-2's, Medusa's and SpecInfer's, one class with presets.

A node is named by its path of ranks from the root, counted from 0: (0, 1) is the second choice
behind the first. A tree is a sequence of nodes in the order they are verified, parents before
children, so that K verified nodes are its first K. Where a tree is grown anew in every step, the
`branching` best nodes of a level are expanded, each into its `branching` best children, and the K
candidates with the best joint probability are verified.

What grown trees do not show: small trees as SGLang serves them. On an H200 its trees of 5 and 7
nodes (steps 5 and 7, topk 3 and 4) emitted 0.91 and 0.87 of what a chain of the same depth did, on
average over 88 cells (SpecForge, docs/spec_bundle data); best-first trees of a calibrated drafter
emit 1.01 to 1.16 of it, the more the worse the drafter.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost, Drafter
from adaptive_spec.sim.drafters.chains import Eagle
from adaptive_spec.sim.drafters.pricing import (
    LAYER_PARAMETERS,
    TargetShape,
    draft_cost,
    network_share,
)
from adaptive_spec.sim.drafters.ranks import (
    DRAFT_MODEL_TAIL,
    EAGLE_TAIL,
    NEVER,
    RankTail,
    TruePath,
    true_path,
    true_ranks,
)
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.step import Capability, FloatArray

Node = tuple[int, ...]
Tree = tuple[Node, ...]

MOST_NODES = NEVER - 1
EAGLE_HAZARDS = (0.79, 0.74, 0.72, 0.73, 0.67)
"""n-alpha, n = 0..4: Vicuna-7B on MT-Bench, greedy (EAGLE, arXiv 2401.15077, table 2)."""
EAGLE_CHILDREN = {
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
HEAD_ACCURACY = (0.60, 0.28, 0.19, 0.12)
"""First choices of Medusa's heads 1..4 on chat. Head 1 is published; heads 2..4 were fitted to the
order in which the published tree of 63 nodes was grown from the heads' accuracies (7 % of its node
pairs stay in the wrong order). Not fitted to any acceptance data."""
HEAD_TAILS = (
    RankTail(0.43, "head 1: .60 first choice, over .80 within the first five (Medusa's blog post)"),
    *[RankTail(0.18, "fitted to the order of the published tree, see HEAD_ACCURACY")] * 3,
)
HEAD_WIDTH = 10
SPECINFER_FIRST = 0.66
"""Accuracy of a draft model's first choice (SpecInfer, table 1: mean of five prompt sets)."""
CONCENTRATION = 3.0
"""a + b of the Beta prior of a first choice's probability. At an acceptance rate of 0.75 that tells
right from wrong with an AUC of 0.83; 0.84 and 0.88 were reported for a trained head and a logit
margin (vLLM, pull request 52228)."""
_CHUNK = 4096

Levels = Annotated[int, msgspec.Meta(ge=1, le=16)]
Nodes = Annotated[int, msgspec.Meta(ge=1, le=MOST_NODES)]
Width = Annotated[int, msgspec.Meta(ge=1, le=32)]


class TokenTree(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drafter that always makes a whole tree. K counts nodes.

    The presets below hold what was published. As it stands it is SpecInfer's: a draft model whose
    tree splits on one level and goes on with first choices elsewhere.

    Attributes:
        levels: depth of the tree; a network that drafts level by level runs as many passes.
        branching: children of a node where the tree splits, and nodes expanded on a level.
        split: level on which a tree of form `split` splits, from 1.
        nodes: the most that are verified.
        share: a draft model's parameters over the target's.
        kv: a draft model's KV bytes per token over the target's.
    """

    levels: Levels = 8
    branching: Width = 3
    split: Levels = 3
    nodes: Nodes = MOST_NODES
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.068 / 6.738
    kv: Annotated[float, msgspec.Meta(ge=0)] = (2 * 768) / (32 * 4096)

    name: ClassVar[str] = "token_tree"
    source: ClassVar[str] = (
        "SpecInfer, arXiv 2305.09781: widths 1 1 3 1 1 1 1 1, LLaMA-68M for LLaMA-7B"
    )
    network: ClassVar[Literal["draft model", "layer", "heads"]] = "draft model"
    """What drafts: a smaller model, EAGLE's layer and the target's head, or Medusa's heads."""
    form: ClassVar[Literal["split", "EAGLE", "best", "grown"]] = "split"
    """Which nodes: split on one level, EAGLE's published ones, the most probable, or grown anew."""
    depth_follows: ClassVar[bool] = False

    def tree(self) -> Tree:
        """Nodes of a tree that is the same in every step, most probable first."""
        if self.form == "best":
            return best_tree(rank_probabilities(HEAD_ACCURACY, HEAD_TAILS, HEAD_WIDTH), self.nodes)
        if self.form == "EAGLE":
            nodes = [(*n, rank) for n, count in EAGLE_CHILDREN.items() for rank in range(count)]
            first, width = list(EAGLE_HAZARDS), max(EAGLE_CHILDREN.values())
        else:
            widths = [1] * self.levels
            widths[min(self.split, self.levels) - 1] = self.branching
            nodes = [
                node
                for level in range(1, self.levels + 1)
                for node in product(*(range(width) for width in widths[:level]))
            ]
            first, width = [SPECINFER_FIRST] * self.levels, self.branching
        probabilities = rank_probabilities(first, [self._tail] * len(first), width)
        return in_order_of_probability(nodes, probabilities)[: self.nodes]

    @property
    def _tail(self) -> RankTail:
        return DRAFT_MODEL_TAIL if self.network == "draft model" else EAGLE_TAIL

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """A pass per level, always all of them, over the nodes of the level; heads make one."""
        if self.network == "heads":
            share = self.weight_bytes(hardware) / hardware.weight_bytes
            return draft_cost(self.name, hardware, share, fixed_passes=1)
        eagle = self.network == "layer"
        tokens = self.branching if self.form == "grown" else len(self.tree()) / self.levels
        return draft_cost(
            self.name,
            hardware,
            network_share(hardware, layers=1) if eagle else self.share,
            tokens_per_request=tokens,
            fixed_passes=self.levels,
        )

    def most_drafts(self, depth: int) -> int:
        """The nodes of the tree."""
        return self.nodes if self.form == "grown" else len(self.tree())

    def weight_bytes(self, hardware: Hardware) -> float:
        """A draft model, one layer, or per head h^2 and V h parameters."""
        target = TargetShape.of(hardware)
        if self.network == "heads":
            share = len(HEAD_ACCURACY) * (target.layer / LAYER_PARAMETERS + target.head)
        else:
            share = target.layer if self.network == "layer" else self.share
        return share * hardware.weight_bytes

    def kv_share(self, hardware: Hardware) -> float:
        """A draft model's, one layer's, or nothing."""
        if self.network == "heads":
            return 0.0
        return 1.0 / hardware.layers if self.network == "layer" else self.kv

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """The true path's place in the tree, from data of a chain.

        For heads, `accepted` becomes their first choices, which do not see each other.
        """
        if data.tree_sizes is not None:
            return data
        if self.network == "heads":
            ranks = head_ranks(data, random)
            first = np.cumprod(ranks == 0, axis=1).sum(axis=1).astype(np.uint8)
            data = replace(data, accepted=first)
        else:
            path = true_path(data, min(self.levels, data.depth))
            ranks = true_ranks(path, self._tail, random)
        if self.form == "grown":
            sizes = self._grown(first_choice_probability(data, path, random), ranks)
        else:
            sizes = sizes_to_reach(ranks, self.tree())
        return replace(data, tree_sizes=sizes, confidence=None)

    def _grown(self, first: FloatArray, ranks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """[P, depth] place of the true path among the candidates of each step."""
        tail = self._tail.shares(self.branching)
        # No later choice may look better than the first.
        floor = tail[0] / (1.0 + tail[0]) if len(tail) else 0.0
        first = np.maximum(first, floor)[:, :, None]
        sizes = np.empty(ranks.shape, dtype=np.uint8)
        for begin in range(0, len(sizes), _CHUNK):
            rows = slice(begin, begin + _CHUNK)
            probabilities = np.concatenate((first[rows], (1.0 - first[rows]) * tail), axis=2)
            sizes[rows] = candidate_order(probabilities, ranks[rows], self.branching)
        sizes[sizes > self.nodes] = NEVER
        return sizes


class EagleTree(TokenTree, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """EAGLE's static tree: 25 nodes on five levels."""

    levels: Levels = len(EAGLE_HAZARDS)
    nodes: Nodes = 25

    name: ClassVar[str] = "eagle_tree"
    source: ClassVar[str] = "EAGLE, arXiv 2401.15077; SafeAILab/EAGLE, choices.py (mc_sim_7b_63)"
    network = "layer"
    form = "EAGLE"


class Eagle2Tree(TokenTree, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """EAGLE-2: a tree grown anew in every step, deep where the drafter is sure, else wide."""

    levels: Levels = 6
    branching: Width = 10
    nodes: Nodes = 60

    name: ClassVar[str] = "eagle2_tree"
    source: ClassVar[str] = "EAGLE-2, arXiv 2406.16858 (7B: 60 nodes, depth 6, 10 per level)"
    network = "layer"
    form = "grown"


class Medusa(TokenTree, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Four heads on the target's last hidden state, and the best static tree of 63 nodes.

    The heads don't see each other's tokens. Whether a head is right depends on how predictable its
    token is, which the data say, and on how far ahead it looks: where a drafter that sees its own
    drafts is right, head j is right with probability accuracy_j / EAGLE_HAZARDS[0], and nowhere
    else. The data must therefore be those of such a drafter, not Medusa's own.
    """

    levels: Levels = len(HEAD_ACCURACY)
    nodes: Nodes = 63

    name: ClassVar[str] = "medusa"
    source: ClassVar[str] = (
        "Medusa, arXiv 2401.10774; FasterDecoding/Medusa, medusa_choices.py (mc_sim_7b_63)"
    )
    network = "heads"
    form = "best"
    # The heads keep no state: the next target pass brings the hidden state they need.
    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False


class SteeredTree(Eagle, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Trees of an engine that steers their depth, as recorded: K is the depth, not the nodes.

    Attributes:
        nodes: tokens of a request, the root among them, that are verified at each K of 0..Kmax.
    """

    nodes: tuple[int, ...]

    name: ClassVar[str] = "steered_tree"
    source: ClassVar[str] = "recorded depths and nodes of SGLang's trees (adapters/sglang/arms.py)"

    def extra_tokens(self, k: int) -> int:
        """Nodes beside the K of a path and the root."""
        return self.nodes[k] - 1 - k

    def tree_nodes(self, ks: Sequence[int]) -> tuple[int, ...]:
        """Tokens of a request at each K."""
        return tuple(self.nodes[k] for k in ks)


def steered_tree(capability: Capability) -> SteeredTree:
    """Return the trees of an engine; at depths that it cannot run, nodes are in between."""
    every = range(capability.max_draft_tokens + 1)
    known = (0, *capability.uniform_values), (1, *capability.tree_nodes)
    return SteeredTree(nodes=tuple(round(float(np.interp(k, *known))) for k in every))


def rank_probabilities(first: Iterable[float], tails: Iterable[RankTail], width: int) -> FloatArray:
    """[depth, width] probability of each rank at each level, from that of rank 0 and the tail."""
    rows = [
        np.concatenate(([hit], (1.0 - hit) * tail.shares(width)))
        for hit, tail in zip(first, tails, strict=True)
    ]
    return np.array(rows)


def best_tree(probabilities: FloatArray, nodes: int) -> Tree:
    """Return the tree of `nodes` nodes with the highest sum of path probabilities, best node first.

    Greedy is exact, since a child is never more probable than its parent. Ties: the shorter path,
    then the lower ranks.

    Args:
        probabilities: [depth, width] of each rank at each level; those of a level must not rise.
        nodes: how many, at most `MOST_NODES`.
    """
    depth, width = probabilities.shape
    frontier: list[tuple[float, int, Node]] = [(-float(probabilities[0, 0]), 1, (0,))]
    tree: list[Node] = []
    while frontier and len(tree) < min(nodes, MOST_NODES):
        value, level, node = heapq.heappop(frontier)
        tree.append(node)
        last = node[-1]
        if last + 1 < width:
            scale = float(probabilities[level - 1, last + 1] / probabilities[level - 1, last])
            heapq.heappush(frontier, (value * scale, level, (*node[:-1], last + 1)))
        if level < depth:
            child = value * float(probabilities[level, 0])
            heapq.heappush(frontier, (child, level + 1, (*node, 0)))
    return tuple(tree)


def in_order_of_probability(nodes: Iterable[Node], probabilities: FloatArray) -> Tree:
    """A given set of nodes, most probable first; ties as in `best_tree`."""

    def key(node: Node) -> tuple[float, int, Node]:
        value = 1.0
        for level, rank in enumerate(node):
            value *= float(probabilities[level, rank])
        return (-value, len(node), node)

    return tuple(sorted(nodes, key=key))


def sizes_to_reach(ranks: NDArray[np.uint8], tree: Tree) -> NDArray[np.uint8]:
    """[P, depth] number of nodes, in the tree's order, that hold the true path down to each level.

    `NEVER` where the path leaves the tree.

    Args:
        ranks: [P, depth] of the true tokens, level by level; `NEVER` for none.
        tree: at most `MOST_NODES` nodes, parents before children.
    """
    width = max(node[-1] for node in tree) + 1
    numbers = {node: number for number, node in enumerate(tree, start=1)}
    child = np.full((len(tree) + 1, width), NEVER, dtype=np.uint8)
    for node, number in numbers.items():
        child[numbers[node[:-1]] if len(node) > 1 else 0, node[-1]] = number
    sizes = np.full(ranks.shape, NEVER, dtype=np.uint8)
    at = np.zeros(len(ranks), dtype=np.int64)
    inside = np.ones(len(ranks), dtype=np.bool_)
    for level in range(ranks.shape[1]):
        rank = ranks[:, level]
        inside &= rank < width
        reached = child[at, np.minimum(rank, width - 1)]
        inside &= reached != NEVER
        sizes[inside, level] = reached[inside]
        at = np.where(inside, reached, 0)
    return sizes


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


def head_ranks(data: AcceptanceData, random: np.random.Generator) -> NDArray[np.uint8]:
    """[P, heads] rank (from 0) of each true token in the head that looks so far ahead."""
    depth = min(len(HEAD_ACCURACY), data.depth)
    path = true_path(data, depth)
    accuracy = np.array(HEAD_ACCURACY[:depth])
    right = path.hit & (
        random.random(path.hit.shape) < np.minimum(1.0, accuracy / EAGLE_HAZARDS[0])
    )
    uniform = random.random(path.hit.shape)
    missed = np.stack([HEAD_TAILS[head].draw(uniform[:, head]) for head in range(depth)], axis=1)
    ranks = np.where(right, 0, missed)
    ranks[~path.known] = NEVER
    result: NDArray[np.uint8] = ranks.astype(np.uint8)
    return result
