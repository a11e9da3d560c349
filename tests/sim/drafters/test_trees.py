import gzip
import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from adaptive_spec.sim.drafters.ranks import (
    DRAFT_MODEL_TAIL,
    EAGLE_TAIL,
    NEVER,
    RankTail,
    true_path,
    true_ranks,
)
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.drafters.trees import (
    EAGLE_HAZARDS,
    HEAD_ACCURACY,
    Eagle2Tree,
    EagleTree,
    Medusa,
    TokenTree,
    best_tree,
    candidate_order,
    first_choice_probability,
    head_ranks,
    in_order_of_probability,
    rank_probabilities,
    sizes_to_reach,
)
from tests.sim.drafters.fake_records import accepted_by_tree, chain_data, data_of, mean_emitted

TREES = {tree.name: tree().tree() for tree in (EagleTree, Medusa, TokenTree)}


def value(node, probabilities):
    return float(np.prod([probabilities[level, rank] for level, rank in enumerate(node)]))


def test_the_best_tree_is_the_best_of_all_nodes_by_brute_force():
    random = np.random.default_rng(0)
    probabilities = -np.sort(-random.random((3, 4)), axis=1)
    everything = [n for level in (1, 2, 3) for n in product(range(4), repeat=level)]
    expected = sorted(everything, key=lambda node: -value(node, probabilities))
    assert list(best_tree(probabilities, 84)) == expected
    assert best_tree(probabilities, 10) == tuple(expected[:10])


def test_equally_probable_nodes_are_taken_parents_first():
    tree = best_tree(np.ones((3, 2)), 14)
    assert [len(node) for node in tree] == [1, 1, 2, 2, 2, 2] + [3] * 8
    assert in_order_of_probability(reversed(tree), np.ones((3, 2))) == tree


@pytest.mark.parametrize("name", TREES)
def test_parents_come_before_their_children(name):
    tree = TREES[name]
    seen = {()}
    for node in tree:
        assert node[:-1] in seen
        seen.add(node)
    assert len(seen) == len(tree) + 1


def test_the_trees_have_the_published_nodes():
    by_level = {name: np.bincount([len(n) for n in tree])[1:] for name, tree in TREES.items()}
    # SafeAILab/EAGLE, choices.py.
    assert by_level["eagle_tree"].tolist() == [4, 8, 8, 3, 2]
    # SpecInfer's widths 1 1 3 1 1 1 1 1.
    assert by_level["token_tree"].tolist() == [1, 1, 3, 3, 3, 3, 3, 3]
    # FasterDecoding/Medusa, medusa_choices.py, mc_sim_7b_63 has 10, 28, 23 and 2.
    assert np.abs(by_level["medusa"] - [10, 28, 23, 2]).max() <= 2


def test_a_tree_gives_the_same_as_walking_it_by_hand():
    random = np.random.default_rng(3)
    tree = best_tree(rank_probabilities([0.6, 0.5, 0.4], [EAGLE_TAIL] * 3, 4), 17)
    ranks = random.integers(0, 5, size=(500, 3)).astype(np.uint8)
    ranks[random.random((500, 3)) < 0.1] = NEVER
    sizes = sizes_to_reach(ranks, tree)
    for nodes in range(18):
        verified = set(tree[:nodes])
        for row, ranked in enumerate(ranks.tolist()):
            accepted = 0
            while accepted < 3 and tuple(ranked[: accepted + 1]) in verified:
                accepted += 1
            assert int((sizes[row] <= nodes).sum()) == accepted


@pytest.mark.parametrize("tail", [DRAFT_MODEL_TAIL, EAGLE_TAIL, RankTail(0.2, "")])
def test_drawn_ranks_follow_the_tail(tail):
    ranks = tail.draw(np.random.default_rng(0).random(200_000))
    assert ranks.min() == 1
    for rank, share in enumerate(tail.shares(8), start=1):
        assert np.mean(ranks == rank) == pytest.approx(share, abs=0.004)


def test_the_tail_of_draft_models_fits_the_published_top_k_rates():
    # SpecInfer, arXiv 2305.09781, table 1, greedy: mean of the five prompt sets.
    first, *published = (0.664, 0.768, 0.810, 0.842, 0.856)
    modelled = first + (1 - first) * np.cumsum(DRAFT_MODEL_TAIL.shares(5))
    assert modelled == pytest.approx(published, abs=0.01)


def test_extreme_draws_stay_in_range():
    ranks = EAGLE_TAIL.draw(np.array([0.0, 1.0 - 1e-16, np.nextafter(1.0, 0.0)]))
    assert ranks[0] == 1
    assert (ranks[1:] == NEVER).all()


def test_behind_a_miss_the_true_path_goes_on_as_the_next_step():
    #          position: 0  1  2  3  4  5
    data = data_of([2, 1, 0, 1, 0, 3], record=6, depth=3)
    path = true_path(data, 3)
    # From 0: tokens 0 and 1 are right, 2 is missed.
    assert path.hit[0].tolist() == [True, True, False]
    # From 1: token 1 right, 2 missed; the step at 3 gets token 3 right.
    assert path.hit[1].tolist() == [True, False, True]
    assert path.start[1].tolist() == [1, 1, 3]
    # From 2: token 2 missed; the step at 3 gets 3 right and misses 4.
    assert path.hit[2].tolist() == [False, True, False]
    # From 4: token 4 missed, the step at 5 gets its tokens right.
    assert path.hit[4].tolist() == [False, True, True]


def test_a_miss_at_the_end_of_a_record_leaves_the_rest_unknown():
    data = data_of([0, 0, 2, 2], record=2, depth=2)
    path = true_path(data, 2)
    assert path.known.tolist() == [[True, True], [True, False], [True, True], [True, True]]
    ranks = true_ranks(true_path(data, 2), EAGLE_TAIL, np.random.default_rng(0))
    assert ranks[1, 1] == NEVER
    assert (ranks[2:] == 0).all()


def test_first_choices_are_right_as_often_as_the_chain_says():
    data = chain_data((0.7, 0.6, 0.5), positions=20_000)
    ranks = true_ranks(true_path(data, 3), EAGLE_TAIL, np.random.default_rng(0))
    assert np.array_equal(np.cumprod(ranks == 0, axis=1).sum(axis=1), data.accepted)


def test_a_missed_token_has_one_rank_from_whichever_step_it_is_seen():
    data = data_of([1, 0, 1, 0] * 5, record=20, depth=2)
    ranks = true_ranks(true_path(data, 2), EAGLE_TAIL, np.random.default_rng(0))
    # Token 1 is missed by the step at 0 (second level) and by the step at 1 (first level).
    assert np.array_equal(ranks[0:20:2, 1], ranks[1:20:2, 0])
    assert (ranks[1:20:2, 0] > 0).all()


def test_medusas_heads_do_not_gain_from_each_other():
    # Where every token is predictable the heads' hits are independent of each other.
    data = data_of([4] * 20_000, record=20_000, depth=4)
    ranks = head_ranks(data, np.random.default_rng(0))
    right = ranks == 0
    expected = np.array(HEAD_ACCURACY) / EAGLE_HAZARDS[0]
    assert right.mean(axis=0) == pytest.approx(expected, abs=0.015)
    both = (right[:, 0] & right[:, 1]).mean()
    assert both == pytest.approx(expected[0] * expected[1], abs=0.015)


def test_medusas_acceptance_falls_faster_by_position_than_a_chains():
    data = chain_data((0.79, 0.74, 0.72, 0.73), positions=20_000)
    shaped = drafter("medusa").shape(data, np.random.default_rng(0))
    survival = [(shaped.accepted >= j).mean() for j in range(1, 5)]
    chain = [(data.accepted >= j).mean() for j in range(1, 5)]
    assert np.all(np.diff(np.array(survival) / np.array(chain)) < 0)
    assert survival[0] == pytest.approx(0.60, abs=0.02)


def grown_by_hand(probabilities, branching):
    """Every candidate of one step, best joint probability first, by explicit growth."""
    expanded = [((), 1.0)]
    candidates = []
    for level in probabilities:
        children = [
            ((*node, rank), value * level[rank])
            for node, value in expanded
            for rank in range(branching)
        ]
        candidates += children
        expanded = sorted(children, key=lambda child: -child[1])[:branching]
    return [node for node, _ in sorted(candidates, key=lambda candidate: -candidate[1])]


@pytest.mark.parametrize("branching", [1, 2, 3, 5])
def test_the_order_equals_growing_the_tree_by_hand(branching):
    random = np.random.default_rng(branching)
    probabilities = -np.sort(-random.random((200, 4, branching)), axis=2)
    ranks = random.integers(0, branching + 1, size=(200, 4)).astype(np.uint8)
    ranks[random.random((200, 4)) < 0.05] = NEVER
    order = candidate_order(probabilities, ranks, branching)
    for row in range(200):
        candidates = grown_by_hand(probabilities[row], branching)
        for level in range(4):
            node = tuple(ranks[row, : level + 1].tolist())
            expected = candidates.index(node) + 1 if node in candidates else NEVER
            assert order[row, level] == min(expected, NEVER)


def test_equally_probable_parents_come_first():
    ranks = np.zeros((1, 3), dtype=np.uint8)
    assert candidate_order(np.ones((1, 3, 2)), ranks, 2).tolist() == [[1, 3, 7]]


def test_probabilities_are_calibrated():
    data = chain_data((0.75, 0.7, 0.65), positions=60_000, record=60_000)
    path = true_path(data, 3)
    first = first_choice_probability(data, path, np.random.default_rng(0))
    for level in range(3):
        known = path.known[:, level]
        said, right = first[known, level], path.hit[known, level]
        edges = np.quantile(said, np.linspace(0, 1, 11))
        for low, high in pairwise(edges):
            inside = (said >= low) & (said < high)
            if inside.any():
                assert right[inside].mean() == pytest.approx(said[inside].mean(), abs=0.03)


def test_the_probability_tells_right_from_wrong_as_well_as_stated():
    data = chain_data((0.75,), positions=40_000)
    path = true_path(data, 1)
    first = first_choice_probability(data, path, np.random.default_rng(0))[:, 0]
    right, wrong = first[path.hit[:, 0]], np.sort(first[~path.hit[:, 0]])
    area = np.searchsorted(wrong, right).mean() / len(wrong)
    assert area == pytest.approx(0.82, abs=0.01)


def test_recorded_confidence_is_used_where_there_is_any():
    data = chain_data((0.7, 0.6), positions=400)
    recorded = np.full((400, 2), 0.625, dtype=np.float32)
    recorded[::2, 1] = np.nan
    path = true_path(data, 2)
    with_record = replace(data, confidence=recorded)
    first = first_choice_probability(with_record, path, np.random.default_rng(0))
    assert (first[:, 0] == 0.625).all()
    level = np.arange(400) + 1 - path.start[:, 1]
    missing = (level == 1) & (np.arange(400) % 2 == 0)
    assert (first[missing, 1] != 0.625).all()
    assert (first[(level == 1) & ~missing, 1] == 0.625).all()


def test_a_sure_drafter_grows_deep_an_unsure_one_wide():
    data = data_of([4] * 50 + [0] * 50, record=100, depth=4)
    sure = replace(data, confidence=np.full((100, 4), 0.99, dtype=np.float32))
    unsure = replace(data, confidence=np.full((100, 4), 0.35, dtype=np.float32))
    made = Eagle2Tree()
    deep = accepted_by_tree(made.shape(sure, np.random.default_rng(0)), 4)
    wide = accepted_by_tree(made.shape(unsure, np.random.default_rng(0)), 4)
    assert (deep[:50] == 4).all()
    assert (wide[:50] < 4).all()
    assert wide[50:].mean() > deep[50:].mean()


def test_it_beats_the_static_tree_with_as_many_nodes():
    data = chain_data((0.79, 0.74, 0.72, 0.73, 0.67), positions=8_000)
    dynamic = Eagle2Tree(levels=5).shape(data, np.random.default_rng(0))
    static = EagleTree().shape(data, np.random.default_rng(0))
    for nodes in (6, 12, 25):
        assert accepted_by_tree(dynamic, nodes).mean() > accepted_by_tree(static, nodes).mean()


MT_BENCH = {
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
}  # fmt: skip


def measured_mean(path: Path) -> float:
    """Tokens per step on MT-Bench."""
    steps = tokens = 0
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["category"] in MT_BENCH:
                for turn in row["accept_lengths"]:
                    steps, tokens = steps + len(turn), tokens + sum(turn)
    return tokens / steps


def modelled_mean(name: str, nodes: int, levels: int = 5) -> float:
    """With EAGLE's published chain acceptance for Vicuna-7B on MT-Bench."""
    hazards = (*EAGLE_HAZARDS, EAGLE_HAZARDS[-1])[:levels]
    data = chain_data(hazards, positions=40_000, record=400)
    shaped = drafter(name).shape(data, np.random.default_rng(1))
    return mean_emitted(accepted_by_tree(shaped, nodes), data.offsets)


@pytest.mark.parametrize(
    ("file", "mean", "name", "nodes"),
    [
        # Only the first level's tail was taken from this file; the mean was not fitted.
        ("specbench_vicuna7b_eagle1_yukiki", 3.84, "eagle_tree", 25),
        # Nothing was fitted to this file.
        ("mtbench_vicuna7b_medusa_bnukh", 2.52, "medusa", 63),
    ],
)
def test_trees_on_mt_bench(data, file, mean, name, nodes):
    measured = measured_mean(data / "acceptance" / f"{file}.jsonl.gz")
    assert measured == pytest.approx(mean, abs=0.01)
    assert modelled_mean(name, nodes) == pytest.approx(measured, rel=0.07)


def test_eagles_tree_in_the_paper():
    # EAGLE, arXiv 2401.15077, table 2: tau of Vicuna-7B, greedy, MT-Bench.
    assert modelled_mean("eagle_tree", 25) == pytest.approx(3.94, rel=0.05)


def test_a_dynamic_tree_gains_over_the_static_one_as_much_as_published():
    # Spec-Bench leaderboard, Vicuna-7B: EAGLE-2 4.35, EAGLE 3.57 mean accepted tokens.
    ratio = modelled_mean("eagle2_tree", 60, levels=6) / modelled_mean("eagle_tree", 25)
    assert ratio == pytest.approx(4.35 / 3.57, rel=0.07)
