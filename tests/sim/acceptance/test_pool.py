from dataclasses import replace

import numpy as np
import pytest

from adaptive_spec.sim.acceptance.pool import pool, select

from .fake_records import data_of

A = replace(data_of([2, 1, 0], [1, 0], name="a"), labels=("a1", "a2"))
B = replace(data_of([3, 0], depth=4, name="b"), labels=("b1",), temperature=0.8)


def records_of(data):
    return [
        (label, tuple(data.accepted[start:end].tolist()))
        for label, start, end in zip(data.labels, data.offsets[:-1], data.offsets[1:], strict=True)
    ]


def test_selection_keeps_order_and_allows_repeats():
    assert records_of(select(A, np.array([1, 0, 1]))) == [
        ("a2", (1, 0)),
        ("a1", (2, 1, 0)),
        ("a2", (1, 0)),
    ]


def test_selection_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no records"):
        select(A, np.array([], dtype=np.int64))


def test_pooled_data_holds_every_record_once_at_the_smaller_depth():
    pooled = pool([A, B], seed=0)
    assert sorted(records_of(pooled)) == sorted(records_of(A) + records_of(B))
    assert pooled.depth == 4
    assert pooled.temperature == 0.8
    assert pooled.name == "a+b"


def test_pooled_records_keep_their_temperatures():
    pooled = pool([A, B], seed=0)
    by_label = dict(zip(pooled.labels, pooled.temperatures.tolist(), strict=True))
    assert by_label == {"a1": 0.0, "a2": 0.0, "b1": 0.8}
    assert pool([A, A], seed=0).record_temperature is None


def test_pooling_cuts_runs_to_the_smaller_depth():
    pooled = pool([data_of([6, 0]), data_of([1], depth=2)], seed=0)
    assert pooled.accepted.max() == 2


def test_pooled_records_are_interleaved_by_the_seed():
    parts = [replace(data_of(*[[value]] * 50), labels=(str(value),) * 50) for value in (0, 1)]
    one, two, other = (pool(parts, seed=s).labels for s in (1, 1, 2))
    assert one == two
    assert one != other
    assert len(set(one[:20])) == 2


def test_what_one_part_lacks_is_unknown_or_unlimited():
    signal = np.full((2, 4), 0.5, dtype=np.float32)
    some = replace(B, confidence=signal, proposed=np.array([3, 0], dtype=np.uint8))
    pooled = pool([A, some], seed=0)
    known = np.repeat(np.array(pooled.labels) == "b1", pooled.lengths)
    assert np.isnan(pooled.confidence[~known]).all()
    assert (pooled.confidence[known] == 0.5).all()
    assert pooled.proposed[known].tolist() == [3, 0]
    assert set(pooled.proposed[~known]) == {255}


def test_trees_and_chains_do_not_pool():
    tree = replace(B, tree_sizes=np.ones((2, 3), dtype=np.uint8))
    with pytest.raises(ValueError, match="trees"):
        pool([A, tree], seed=0)
    assert pool([tree, tree], seed=0).tree_sizes.shape == (4, 3)


def test_a_single_part_is_left_as_it_is():
    assert pool([A], seed=0) is A
    with pytest.raises(ValueError, match="nothing"):
        pool([], seed=0)
