"""The stand-in for SGLang's compiled operators computes what its docstrings say."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
from serving import STAND_IN

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test` sets it up")

if str(STAND_IN) not in sys.path:
    sys.path.insert(0, str(STAND_IN))
sgl_kernel = importlib.import_module("sgl_kernel")
ancestors = importlib.import_module("sgl_kernel.draft_tree").ancestors
renormalisation = importlib.import_module("sgl_kernel.renormalisation")
speculative = importlib.import_module("sgl_kernel.speculative")

CHAIN = [-1, 0, 1, 2]
BRANCHED = [-1, 0, 0, 1, 1, 2]
"""Parents of the nodes of two trees."""


def links(parents: list[int], requests: int = 1) -> tuple[Any, Any, Any, Any]:
    """Numbers, first children, siblings and positions of a tree, by way of its mask."""
    nodes = len(parents)
    sees, _ = ancestors(parents)
    index, child, sibling = (torch.full((requests, nodes), -1) for _ in range(3))
    positions = torch.empty(requests * nodes, dtype=torch.long)
    lengths = torch.arange(requests) + 7
    speculative.reconstruct_indices_from_tree_mask(
        sees.repeat(requests, 1, 1).flatten(),
        lengths,
        positions,
        index,
        child,
        sibling,
        requests,
        nodes,
    )
    return index, child, sibling, positions.view(requests, nodes)


@pytest.mark.parametrize(
    ("parents", "topk", "selected", "proposers"),
    [
        (CHAIN, 1, [0, 1, 2], [-1, 0, 1]),
        # Two of the first step, then two each of drafts 0 and 1: numbers 2, 3 and 4, 5.
        (BRANCHED, 2, [0, 1, 2, 3, 4], [-1, 0, 1]),
    ],
)
def test_a_tree_is_built_from_selected_drafts(
    parents: list[int], topk: int, selected: list[int], proposers: list[int]
) -> None:
    nodes = len(parents)
    index, child, sibling = (torch.full((1, nodes), -1) for _ in range(3))
    mask = torch.ones(nodes * nodes, dtype=torch.bool)
    positions = torch.empty(nodes, dtype=torch.long)
    sgl_kernel.build_tree_kernel_efficient_cpu(
        torch.tensor([proposers]),
        torch.tensor([selected]),
        torch.tensor([7]),
        mask,
        positions,
        index,
        child,
        sibling,
        topk,
        3,
        nodes,
        1,
    )
    expected = links(parents)
    for made, wanted in zip((index, child, sibling, positions[None]), expected, strict=True):
        assert made.tolist() == wanted.tolist()
    assert mask.view(nodes, nodes).tolist() == ancestors(parents)[0].tolist()


def verified(candidates: list[int], best: list[int], parents: list[int], depth: int) -> Any:
    """What greedy verification accepts: (nodes, predictions)."""
    index, child, sibling, _ = links(parents)
    predicts = torch.full((len(parents),), -1)
    accepted, count = torch.full((1, depth + 1), -1), torch.zeros(1, dtype=torch.int32)
    sgl_kernel.verify_tree_greedy_cpu(
        predicts, accepted, count, torch.tensor([candidates]), index, child, sibling,
        torch.tensor([best]),
    )  # fmt: skip
    kept = accepted[0, : int(count[0]) + 1].tolist()
    return kept, [int(predicts[node]) for node in kept]


def test_greedy_verification_follows_the_target() -> None:
    # Node 0 is the last token; the target says 11, 12, then 99 where the draft said 13.
    assert verified([10, 11, 12, 13], [11, 12, 99, 50], CHAIN, 3) == ([0, 1, 2], [11, 12, 99])
    assert verified([10, 11, 12, 13], [99, 12, 13, 50], CHAIN, 3) == ([0], [99])
    assert verified([10, 11, 12, 13], [11, 12, 13, 50], CHAIN, 3) == (
        [0, 1, 2, 3],
        [11, 12, 13, 50],
    )


def test_greedy_verification_takes_the_branch_that_agrees() -> None:
    assert verified([10, 11, 12, 13, 14, 15], [12, 0, 15, 0, 0, 77], BRANCHED, 2) == (
        [0, 2, 5],
        [12, 15, 77],
    )


@pytest.mark.parametrize("parents", [CHAIN[:2], [-1, 0, 0]], ids=["one draft", "two drafts"])
def test_sampling_verification_has_the_targets_distribution(parents: list[int]) -> None:
    """All pairs of uniform numbers on a grid, so the frequencies are exact up to its step."""
    steps = 120
    nodes = len(parents)
    target = torch.tensor([0.1, 0.45, 0.05, 0.3, 0.1])
    coins = (torch.arange(steps) + 0.5) / steps
    first, last = (grid.flatten() for grid in torch.meshgrid(coins, coins, indexing="ij"))
    requests = len(first)
    index, child, sibling, _ = links(parents, requests)
    predicts = torch.full((requests * nodes,), -1)
    accepted = torch.full((requests, 2), -1)
    count = torch.zeros(requests, dtype=torch.int32)
    sgl_kernel.tree_speculative_sampling_target_only(
        predicts=predicts,
        accept_index=accepted,
        accept_token_num=count,
        candidates=torch.tensor([[0, 1, 3][:nodes]]).repeat(requests, 1),
        retrive_index=index,
        retrive_next_token=child,
        retrive_next_sibling=sibling,
        uniform_samples=first[:, None].repeat(1, nodes),
        uniform_samples_for_final_sampling=last,
        target_probs=target.repeat(requests, nodes, 1),
        draft_probs=torch.zeros(requests, nodes, 5),
    )
    # The token after the root: an accepted draft, or what was sampled instead of it.
    tokens = predicts[index[:, 0]]
    seen = torch.bincount(tokens, minlength=5) / requests
    assert torch.allclose(seen, target, atol=1.5 / steps)
    drafted = target[[1, 3][: nodes - 1]].sum()
    assert float(count.float().mean()) == pytest.approx(float(drafted), abs=1.5 / steps)
    # And the token after an accepted draft.
    after = predicts[accepted[count == 1, 1]]
    seen = torch.bincount(after, minlength=5) / len(after)
    assert torch.allclose(seen, target, atol=1.5 / steps)


def attention_by_hand(query: Any, keys: Any, values: Any) -> Any:
    """One query [heads, size] over keys and values [length, key heads, size]."""
    group = query.shape[0] // keys.shape[1]
    found = []
    for head, asked in enumerate(query):
        weights = torch.softmax(keys[:, head // group] @ asked * 0.5, dim=0)
        found.append(weights @ values[:, head // group])
    return torch.stack(found)


class Pool:
    """A KV pool with two requests whose tokens lie scattered in it."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.keys, self.values = torch.randn(40, 2, 4), torch.randn(40, 2, 4)
        self.table = torch.randperm(40)[:24].view(2, 12)
        self.rows = torch.tensor([1, 0])
        self.lengths = torch.tensor([9, 5])

    def sequence(self, request: int, positions: Any) -> tuple[Any, Any]:
        slots = self.table[self.rows[request], positions]
        return self.keys[slots], self.values[slots]


def test_decode_attention() -> None:
    pool, query, output = Pool(), torch.randn(2, 4, 4), torch.zeros(2, 4, 4)
    new_key, new_value = torch.randn(2, 2, 4), torch.randn(2, 2, 4)
    places = pool.table[pool.rows, pool.lengths - 1]
    sgl_kernel.decode_attention_cpu(
        query, pool.keys, pool.values, 1.0, 1.0, output, new_key, new_value, places, None,
        pool.table, pool.rows, pool.lengths, 0.5, 0.0,
    )  # fmt: skip
    for request, length in enumerate(pool.lengths.tolist()):
        keys, values = pool.sequence(request, torch.arange(length))
        assert torch.equal(keys[-1], new_key[request])
        expected = attention_by_hand(query[request], keys, values)
        assert torch.allclose(output[request], expected, atol=1e-5)


@pytest.mark.parametrize("new", [[3, 3], [4, 2]], ids=["equally many", "unlike"])
def test_extend_attention_is_causal(new: list[int]) -> None:
    pool = Pool()
    counts = torch.tensor(new)
    starts = torch.tensor([0, new[0]])
    query, output = torch.randn(sum(new), 4, 4), torch.zeros(sum(new), 4, 4)
    sgl_kernel.extend_attention_cpu(
        query, None, None, output, pool.keys, pool.values, 1.0, 1.0, pool.table, pool.rows,
        pool.lengths, counts, starts, max(new), 0.5, 0.0, False, 0,
    )  # fmt: skip
    for request, count in enumerate(new):
        for number in range(count):
            seen = torch.arange(int(pool.lengths[request]) - count + number + 1)
            token = int(starts[request]) + number
            expected = attention_by_hand(query[token], *pool.sequence(request, seen))
            assert torch.allclose(output[token], expected, atol=1e-5)


def test_extend_attention_with_a_tree() -> None:
    pool = Pool()
    sees = ancestors([-1, 0, 0])[0]
    counts, starts = torch.tensor([3, 3]), torch.tensor([0, 3])
    query, output = torch.randn(6, 4, 4), torch.zeros(6, 4, 4)
    sgl_kernel.extend_attention_cpu(
        query, None, None, output, pool.keys, pool.values, 1.0, 1.0, pool.table, pool.rows,
        pool.lengths, counts, starts, 3, 0.5, 0.0, False, 0, None, None,
        sees.repeat(2, 1, 1).flatten(),
    )  # fmt: skip
    prefix = int(pool.lengths[1]) - 3
    third = torch.tensor([*range(prefix), prefix, prefix + 2])  # not its sibling
    expected = attention_by_hand(query[5], *pool.sequence(1, third))
    assert torch.allclose(output[5], expected, atol=1e-5)
