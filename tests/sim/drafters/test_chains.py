from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.sim.drafters.lookups import matched_before, most_proposed
from adaptive_spec.sim.drafters.registry import drafter
from tests.sim.drafters.fake_records import chain_data, data_of


@pytest.mark.parametrize("name", ["draft_model", "eagle", "early_exit", "mtp"])
def test_a_chain_leaves_the_data_as_they_are(name):
    data = chain_data((0.7, 0.6))
    assert drafter(name).shape(data, np.random.default_rng(0)) is data
    assert drafter(name).most_drafts(7) == 7


@pytest.mark.parametrize(
    ("name", "most"),
    [("mtp:modules=2,reuse=false", 2), ("block:block=4", 3), ("lookahead:ngram=3", 2)],
)
def test_a_limit_of_the_drafter_caps_proposals_and_acceptance(name, most):
    data = replace(
        data_of([5, 2, 1, 0] * 25, record=50, depth=5),
        confidence=np.full((100, 5), 0.5, dtype=np.float32),
    )
    made = drafter(name)
    shaped = made.shape(data, np.random.default_rng(0))
    assert made.most_drafts(5) == most
    assert shaped.depth == most
    assert np.array_equal(shaped.accepted, np.minimum(data.accepted, most))
    assert shaped.proposed is not None
    assert (shaped.proposed == most).all()
    assert shaped.confidence.shape == (100, most)


def test_which_list_of_a_file_each_drafter_reads():
    lists = {name: drafter(name).acceptance_list for name in ("eagle", "mtp", "medusa", "block")}
    assert set(lists.values()) == {"eagle"}
    for name in ("ngram", "suffix", "lookahead"):
        assert drafter(name).acceptance_list == "ngram"


def test_n_grams_match_without_gain_by_chance():
    data = data_of([0] * 20_000, record=100, depth=8)
    shaped = drafter("ngram").shape(data, np.random.default_rng(0))
    assert shaped.proposed is not None
    assert set(np.unique(shaped.proposed)) <= {0, 8}
    assert (shaped.proposed > 0).mean() == pytest.approx(0.4, abs=0.02)


def test_an_option_overrides_the_match_probability():
    data = data_of([0] * 100, record=100, depth=8, label="gsm8k")
    never = drafter("ngram:match=0").shape(data, np.random.default_rng(0))
    always = drafter("ngram:match=1").shape(data, np.random.default_rng(0))
    assert always.proposed is not None
    assert not never.proposed.any()
    assert (always.proposed == 8).all()


@pytest.mark.parametrize("name", ["ngram:match=0", "suffix:match=0"])
def test_whatever_is_accepted_was_proposed(name):
    data = data_of([3, 0, 1, 0, 0] * 20, record=100, depth=8)
    shaped = drafter(name).shape(data, np.random.default_rng(0))
    assert shaped.proposed is not None
    assert np.array_equal(shaped.proposed > 0, data.accepted > 0)


def test_suffix_proposes_more_after_longer_matches():
    data = data_of(([0] + [8] * 30 + [0]) * 200, record=32, depth=20)
    shaped = drafter("suffix").shape(data, np.random.default_rng(0))
    by_place = shaped.proposed.reshape(200, 32).mean(axis=0)
    assert by_place[15] > by_place[8] > by_place[2]
    # Match and proposal share a tree 24 deep: no more than 12 of each.
    assert shaped.proposed.max() == 12
    longer = drafter("suffix:factor=2").shape(data, np.random.default_rng(0))
    assert longer.proposed.max() == 16


def test_a_short_match_of_a_small_factor_proposes_nothing():
    """As Arctic Inference rounds: int(0.4 m + 1e-6) is 0 for 2 matched tokens, 2 for 5."""
    assert most_proposed(np.array([1, 2, 3, 5, 10]), 0.4).tolist() == [0, 0, 1, 2, 4]
    assert most_proposed(np.array([10]), 0.7).tolist() == [7]


def test_suffix_nearly_always_proposes_something():
    data = data_of([0] * 20_000, record=100, depth=8)
    shaped = drafter("suffix").shape(data, np.random.default_rng(0))
    assert (shaped.proposed > 0).mean() == pytest.approx(0.9, abs=0.01)
    assert shaped.proposed[shaped.proposed > 0].mean() == pytest.approx(1.5, abs=0.05)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 4))
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_the_run_before_a_position_is_counted_within_its_record(accepted, records):
    data = data_of(accepted * records, record=len(accepted), depth=3)
    runs = matched_before(data)
    for record in range(records):
        run = 0
        for place, drafts in enumerate(accepted):
            assert runs[record * len(accepted) + place] == run
            run = run + 1 if drafts else 0
