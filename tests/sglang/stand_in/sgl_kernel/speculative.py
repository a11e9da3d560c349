"""`sgl_kernel.speculative`: trees of the NGRAM worker, which come as masks."""

import torch
from torch import Tensor

from .draft_tree import fill_links


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Positions and links, in place, from who sees whom: [requests, nodes, nodes], flat.

    A node's parent is the last node before it that it sees.
    """
    nodes = draft_token_num
    earlier = tree_mask.view(batch_size, nodes, nodes).bool().tril(diagonal=-1)
    depths = earlier.sum(-1)
    positions.view(batch_size, nodes).copy_(verified_seq_len[:, None] + depths)
    retrive_index.copy_(torch.arange(batch_size * nodes).view(batch_size, nodes))
    numbered = torch.where(earlier, torch.arange(nodes), -1).max(-1).values.tolist()
    for request, parents in enumerate(numbered):
        fill_links(parents, retrive_next_token[request], retrive_next_sibling[request])
