from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from adaptive_spec.sim.drafters.eagle import EagleTree
from adaptive_spec.sim.drafters.eagle2_tree import (
    Eagle2Tree,
    candidate_order,
    first_choice_probability,
)
from adaptive_spec.sim.drafters.ranks import NEVER, true_path
from tests.sim.drafters.fake_records import accepted_by_tree, chain_data, data_of


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
