"""Token trees whose nodes are the same in every step.

A node is named by its path of ranks from the root, counted from 0: (0, 1) is the second choice
behind the first. A tree is a sequence of nodes in the order they are verified, parents before
children, so that K verified nodes are its first K.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.drafters.ranks import NEVER, RankTail
from adaptive_spec.step import FloatArray

Node = tuple[int, ...]
Tree = tuple[Node, ...]

MOST_NODES = NEVER - 1


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
