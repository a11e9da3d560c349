"""From draft tokens to a tree to verify: who is whose child, depth, and who may see whom.

Caller: `build_tree_kernel_efficient_func` in kernels/ops/speculative/spec_tree.py. Node 0 is the
last verified token, node i > 0 the (i - 1)th selected draft. With topk = 1 it is a chain.
"""

import torch
from torch import Tensor

QLEN_ONLY = 1
"""`TreeMaskMode.QLEN_ONLY`, the only mode that SGLang uses on CPU."""


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    nodes: int,
    tree_mask_mode: int,
) -> None:
    """Fill mask, positions and links of every request's tree, in place.

    A selected draft s was proposed by group s // topk; group 0 are the children of the root, and
    `parent_list` [requests, groups] names the draft that proposed each other group. Links are
    -1 where there is none; a node's children are linked in the order of their numbers.
    """
    if tree_mask_mode != QLEN_ONLY:
        raise NotImplementedError("stand-in: only TreeMaskMode.QLEN_ONLY, as SGLang asks on CPU")
    requests = seq_lens.numel()
    retrieve_index.view(requests, nodes).copy_(torch.arange(requests * nodes).view(requests, nodes))
    next_token = retrieve_next_token.view(requests, nodes)
    next_sibling = retrieve_next_sibling.view(requests, nodes)
    depths = positions.view(requests, nodes)
    masks = tree_mask.view(requests, nodes, nodes)
    selected_of = selected_index.view(requests, -1).tolist()
    parents_of = parent_list.reshape(requests, -1).tolist()
    for request, length in enumerate(seq_lens.tolist()):
        selected = selected_of[request]
        parents = [-1] + [
            _parent(draft // topk, parents_of[request], selected) for draft in selected[: nodes - 1]
        ]
        fill_links(parents, next_token[request], next_sibling[request])
        sees, depth_of = ancestors(parents)
        masks[request] = sees
        depths[request] = length + depth_of


def _parent(group: int, proposers: list[int], selected: list[int]) -> int:
    if group == 0:
        return 0
    proposer = proposers[group]
    return selected.index(proposer) + 1 if proposer in selected else -1


def fill_links(parents: list[int], next_token: Tensor, next_sibling: Tensor) -> None:
    """Each node's first child and next sibling; parents come before their children."""
    first_child = [-1] * len(parents)
    sibling = [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        parent = parents[node]
        if parent >= 0:
            sibling[node] = first_child[parent]
            first_child[parent] = node
    next_token.copy_(torch.tensor(first_child))
    next_sibling.copy_(torch.tensor(sibling))


def ancestors(parents: list[int]) -> tuple[Tensor, Tensor]:
    """Which node sees which (itself and its ancestors), [nodes, nodes], and depths [nodes]."""
    sees = torch.eye(len(parents), dtype=torch.bool)
    depth = torch.zeros(len(parents), dtype=torch.long)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sees[node] |= sees[parent]
            depth[node] = depth[parent] + 1
    return sees, depth
