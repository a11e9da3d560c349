"""The table "tree or chain": a tree of breadth one is a chain, and nodes cost more at more load."""

import numpy as np
import pytest

from benchmarks import tree_or_chain
from benchmarks.tree_or_chain import DEFAULT, MODELS, Worlds, rows, tree_of

PROFILE = "h100-llama-8b"


@pytest.fixture(scope="module")
def default() -> tuple[tree_or_chain.Eagle2Tree, Worlds]:
    tree = tree_of(*DEFAULT)
    return tree, Worlds(tree, records=10)


def test_a_tree_of_breadth_one_emits_and_takes_what_a_chain_does() -> None:
    tree = tree_of(5, 1, 6)
    worlds = Worlds(tree, records=10)
    assert worlds.trees == pytest.approx([chain[-1] for chain in worlds.chains])
    for row in rows(PROFILE, tree, worlds):
        assert max(row.ratios) <= 1.0 + 1e-9
        assert row.needed == pytest.approx(1.0, abs=0.03)


def test_the_same_tree_pays_less_at_more_load(
    default: tuple[tree_or_chain.Eagle2Tree, Worlds],
) -> None:
    found = rows(PROFILE, *default)
    by_model = np.array([row.ratios for row in found])
    assert by_model.shape == (len(tree_or_chain.LOADS), len(MODELS))
    assert (by_model[0] > 1.0).all()
    assert (by_model[-1] < 0.9).all()
    needed = [row.needed for row in found]
    assert needed == sorted(needed)
    assert needed[0] < 1.05 < 1.2 < needed[-1]


def test_more_nodes_accept_more_and_take_longer(
    default: tuple[tree_or_chain.Eagle2Tree, Worlds],
) -> None:
    more = Worlds(tree_of(5, 4, 16), records=10)
    assert all(np.array(more.trees) > np.array(default[1].trees))
    assert all(np.array(default[1].trees) > [chain[-1] for chain in default[1].chains])
    wide, narrow = (rows(PROFILE, tree, default[1])[-1] for tree in (tree_of(5, 4, 16), default[0]))
    assert wide.needed > 1.1 * narrow.needed


def test_the_page_has_the_default_tree() -> None:
    text = tree_or_chain.published()
    assert text.count("\n") == len(tree_or_chain.LOADS) + 2
    assert "a tree emits, by the model" in text
