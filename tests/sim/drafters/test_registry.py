from dataclasses import replace

import numpy as np
import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.drafters.registry import FAMILIES, drafter
from tests.refused import refused
from tests.sim.drafters.fake_records import FakeHardware, accepted_by_tree, chain_data

NAMES = [family.name for family in FAMILIES]
TREES = ["eagle_tree", "eagle2_tree", "medusa", "token_tree"]


def test_an_unknown_name_is_an_error_that_lists_the_names():
    with pytest.raises(ConfigError) as error:
        drafter("eegle")
    assert "'eegle'" in str(error.value)
    assert all(name in str(error.value) for name in NAMES)
    assert "\n" not in str(error.value)


def test_options_change_a_drafter():
    assert drafter("lookahead:window=2,ngram=3,guesses=4").extra_tokens(1) == 2 * 2 + 3
    assert drafter("mtp:modules=2,reuse=false").most_drafts(8) == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lookahead:windw=2", "windw"),
        ("lookahead:window=none", "window"),
        ("lookahead:window=0", "window"),
        ("lookahead:window", "option=value"),
        ("lookahead:window=1,window=2", "twice"),
        ("lookahead:", "option=value"),
        ("eagle:depth=3", "depth"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(name, says):
    with refused(ConfigError, says):
        drafter(name)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_shape_other_seed_other_draws(name):
    data = chain_data((0.7, 0.6, 0.6, 0.5, 0.5, 0.4), label="gsm8k")
    shaped = [drafter(name).shape(data, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    for field in ("accepted", "proposed", "tree_sizes"):
        first, again, other = (getattr(each, field) for each in shaped)
        assert np.array_equal(first, again)
        if field == "tree_sizes" and name in TREES:
            assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", NAMES)
def test_shaping_keeps_the_records_and_leaves_the_original_alone(name):
    data = chain_data((0.7, 0.6, 0.5))
    before = data.accepted.copy()
    shaped = drafter(name).shape(data, np.random.default_rng(0))
    assert np.array_equal(data.accepted, before)
    assert np.array_equal(shaped.offsets, data.offsets)
    assert shaped.accepted.dtype == np.uint8
    assert int(shaped.accepted.max()) <= shaped.depth <= data.depth
    if shaped.proposed is not None:
        assert shaped.proposed.dtype == np.uint8
        assert shaped.proposed.shape == data.accepted.shape
    if shaped.tree_sizes is not None:
        assert shaped.tree_sizes.dtype == np.uint8
        assert shaped.tree_sizes.shape[0] == len(data.accepted)


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_a_plausible_part_of_the_target(name):
    hardware = FakeHardware()
    made = drafter(name)
    assert 0 <= made.weight_bytes(hardware) < 0.5 * hardware.weight_bytes
    assert 0 <= made.kv_share(hardware) <= 0.5


@pytest.mark.parametrize("name", ["none", "lookahead", "early_exit", "ngram", "suffix"])
def test_drafters_without_weights_take_no_memory(name):
    made = drafter(name)
    assert made.weight_bytes(FakeHardware()) == 0
    assert made.kv_share(FakeHardware()) == 0
    assert not made.stale_after_cold


def test_without_a_drafter_nothing_is_proposed_and_nothing_costs():
    made = drafter("none")
    shaped = made.shape(chain_data((0.9, 0.9)), np.random.default_rng(0))
    assert not shaped.proposed.any()
    assert made.cost_on(FakeHardware()).seconds(4, 64, 10_000) == 0.0
    assert not made.off_pass


@pytest.mark.parametrize("name", TREES)
def test_trees_accept_more_the_more_nodes_are_verified(name):
    shaped = drafter(name).shape(chain_data((0.7, 0.7, 0.6, 0.6, 0.5)), np.random.default_rng(0))
    last = accepted_by_tree(shaped, 0)
    assert not last.any()
    for nodes in range(1, 64):
        now = accepted_by_tree(shaped, nodes)
        assert (now >= last).all()
        last = now
    assert last.max() <= shaped.depth


@pytest.mark.parametrize("name", TREES)
def test_the_sizes_of_a_tree_ascend_along_the_path(name):
    hazards = (0.7, 0.7, 0.6, 0.6, 0.5)
    for depth in (2, 5):  # shallow data make a shallow tree
        shaped = drafter(name).shape(chain_data(hazards[:depth]), np.random.default_rng(0))
        sizes = shaped.tree_sizes.astype(int)
        assert sizes.shape[1] == min(depth, 4 if name == "medusa" else 5)
        assert ((np.diff(sizes, axis=1) > 0) | (sizes[:, 1:] == 255)).all()


@pytest.mark.parametrize("name", ["eagle_tree", "token_tree"])
def test_a_whole_tree_accepts_at_least_what_the_chain_does_everywhere(name):
    data = chain_data((0.7, 0.7, 0.6, 0.6, 0.5))
    made = drafter(name)
    shaped = made.shape(data, np.random.default_rng(0))
    assert (accepted_by_tree(shaped, made.most_drafts(data.depth)) >= data.accepted).all()


def test_a_grown_tree_of_all_candidates_accepts_what_the_chain_does():
    data = chain_data((0.7, 0.7, 0.6, 0.6))
    made = drafter("eagle2_tree:levels=4,branching=3,nodes=30")  # 3 + 3 * 9 candidates
    shaped = made.shape(data, np.random.default_rng(0))
    assert (accepted_by_tree(shaped, 30) >= data.accepted).all()
    # With fewer nodes than candidates breadth may cost depth at a position, not on average.
    assert accepted_by_tree(shaped, 4).mean() >= data.accepted.mean()


def test_a_node_that_is_never_verified_never_counts():
    made = drafter("eagle2_tree:nodes=8")
    shaped = made.shape(chain_data((0.7, 0.7, 0.6)), np.random.default_rng(0))
    assert np.array_equal(accepted_by_tree(shaped, 8), accepted_by_tree(shaped, 254))


@pytest.mark.parametrize(
    ("name", "shape"),
    [*((name, (4000, 3)) for name in TREES), *((name, 4000) for name in ("ngram", "suffix"))],
)
def test_trees_and_proposals_that_were_recorded_stay_as_they_are(name, shape):
    field = "tree_sizes" if name in TREES else "proposed"
    recorded = replace(chain_data((0.7, 0.7, 0.6)), **{field: np.full(shape, 2, dtype=np.uint8)})
    assert drafter(name).shape(recorded, np.random.default_rng(0)) is recorded
