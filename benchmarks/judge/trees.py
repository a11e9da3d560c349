"""Token trees of the judge: SGLang's default for Llama, with the nodes that our adapter derives.

Acceptance is a model's, not a record's: a record says whether the drafter's first choice was right,
and the tree model (`sim.drafters.trees`) whether another node of that depth was.
"""

from __future__ import annotations

from adaptive_spec.adapters.sglang.arms import nodes_by_depth
from adaptive_spec.sim.acceptance.data import AcceptanceData
from benchmarks.tree_or_chain import DEFAULT, tree_accepted, tree_of

TREE = "eagle_tree"
"""Method of drafting; its K is the depth."""
DEPTH, TOPK, _ = DEFAULT
NODES = nodes_by_depth(*DEFAULT, range(DEPTH + 1), {})
"""Nodes, with the root, by depth."""


def right_by_depth(data: AcceptanceData) -> dict[int, list[int]]:
    """Return the depth of the accepted path at every position, for the tree of each depth.

    Args:
        data: of a chain as deep as the deepest tree, or deeper.
    """
    return {
        depth: tree_accepted(tree_of(depth, TOPK, nodes), data).accepted.tolist()
        for depth, nodes in NODES.items()
        if depth
    }
