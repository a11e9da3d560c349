"""Which draft tokens the target accepts, and what follows from it.

Callers: kernels/ops/speculative/{spec_tree,eagle,multi_layer_eagle}.py. A tree's nodes are
reached by `retrive_next_token` (first child) and `retrive_next_sibling`, -1 for none (upstream's
spelling). `retrive_index` numbers the nodes of all requests; predictions and probabilities are
in that order.
"""

import torch
from torch import Tensor


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Follow the target's most likely tokens [requests, nodes] down the tree.

    In place: `predicts` gets the target's token at every node passed, `accept_index` [requests,
    depth + 1] the nodes passed, `accept_token_num` their number without the root.
    """
    best = target_predict.view(candidates.shape)
    for request, tree in enumerate(_trees(candidates, retrive_next_token, retrive_next_sibling)):
        node, passed = 0, [0]
        while len(passed) < accept_index.shape[1]:
            wanted = int(best[request, node])
            child = next((c for c, token in tree.children(node) if token == wanted), None)
            if child is None:
                break
            node = child
            passed.append(node)
        numbers = retrive_index[request, passed]
        predicts[numbers] = best[request, passed].to(predicts.dtype)
        accept_index[request, : len(passed)] = numbers.to(accept_index.dtype)
        accept_token_num[request] = len(passed) - 1


def tree_speculative_sampling_target_only(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    uniform_samples: Tensor,
    uniform_samples_for_final_sampling: Tensor,
    target_probs: Tensor,
    draft_probs: Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Sample from the target and keep drafts that agree: lossless at thresholds of 1.

    At each node one uniform number is laid along the children's target probabilities; the child
    it falls on is accepted, so that a child is taken with the target's own probability. If it
    falls on none, the last token is drawn from the target without those children. Thresholds
    below 1 accept more than that, as upstream's options --speculative-accept-threshold-* say.
    """
    for request, tree in enumerate(_trees(candidates, retrive_next_token, retrive_next_sibling)):
        node, passed, tokens = 0, [0], []
        while True:
            probabilities = target_probs[request, node]
            coin = float(uniform_samples[request, node])
            rejected, mass, child = [], 0.0, None
            children = tree.children(node) if len(passed) < accept_index.shape[1] else []
            for candidate, token in children:
                probability = float(probabilities[token])
                mass += probability
                if coin <= mass / threshold_acc or probability >= threshold_single:
                    child = candidate
                    tokens.append(token)
                    break
                rejected.append(token)
            if child is None:
                break
            node = child
            passed.append(node)
        left = probabilities.clone()
        left[rejected] = 0.0
        cumulative = left.double().cumsum(0)
        coin = float(uniform_samples_for_final_sampling[request]) * float(cumulative[-1])
        tokens.append(min(int(torch.searchsorted(cumulative, coin, right=True)), len(left) - 1))
        numbers = retrive_index[request, passed]
        predicts[numbers] = torch.tensor(tokens, dtype=predicts.dtype)
        accept_index[request, : len(passed)] = numbers.to(accept_index.dtype)
        accept_token_num[request] = len(passed) - 1


class _Tree:
    """One request's candidates as lists, for walking."""

    def __init__(self, tokens: list[int], first_child: list[int], sibling: list[int]) -> None:
        self._tokens, self._first_child, self._sibling = tokens, first_child, sibling

    def children(self, node: int) -> list[tuple[int, int]]:
        """(node, token) of each child."""
        found = []
        child = self._first_child[node]
        while child != -1:
            found.append((child, self._tokens[child]))
            child = self._sibling[child]
        return found


def _trees(candidates: Tensor, next_token: Tensor, next_sibling: Tensor) -> list[_Tree]:
    listed = zip(candidates.tolist(), next_token.tolist(), next_sibling.tolist(), strict=True)
    return [_Tree(*tree) for tree in listed]


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int
) -> None:
    """Each request's last accepted token; `accept_lens` counts the bonus token."""
    last = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.long() - 1
    bonus_tokens[: len(last)] = accept_tokens.flatten()[last].to(bonus_tokens.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens left by one and put its new token last, or at `select_index`."""
    new_tokens = topk_index.view(len(topk_index), -1)[:, 0]
    for request, (start, count) in enumerate(
        zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)
    ):
        if count <= 0:
            continue
        input_ids[start : start + count - 1] = input_ids[start + 1 : start + count].clone()
        place = start + count - 1 if select_index is None else int(select_index[request])
        input_ids[place] = new_tokens[request].to(input_ids.dtype)
