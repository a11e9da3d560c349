"""A vLLM schedule tuned on measured throughput."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.errors import DataError
from adaptive_spec.sim.baselines.engines.batch_table import tuned_table
from tests.sim.baselines.baseline_support import build_baseline, context, make
from tests.sim.baselines.tiny_engine import TinyEngine

RESULTS = st.dictionaries(
    st.integers(1, 512),
    st.dictionaries(st.integers(0, 6), st.floats(1.0, 1e4), min_size=1),
    min_size=1,
    max_size=8,
)


def test_each_measured_size_stands_for_its_surroundings() -> None:
    results = {
        1: {0: 100.0, 3: 200.0, 5: 210.0},
        16: {0: 900.0, 3: 1100.0, 5: 1000.0},
        64: {0: 3000.0, 3: 2900.0},
    }
    # Bounds at sqrt(1 x 16) = 4 and sqrt(16 x 64) = 32.
    assert tuned_table(results) == [(1, 4, 5), (5, 32, 3), (33, 64, 0)]


def test_neighbours_with_the_same_k_are_one_range() -> None:
    same = {size: {1: 1.0, 2: 2.0} for size in (1, 8, 64)}
    assert tuned_table(same) == [(1, 64, 2)]


def test_of_equals_the_smaller_k_wins() -> None:
    assert tuned_table({4: {3: 5.0, 1: 5.0}}) == [(1, 4, 1)]


@given(RESULTS)
def test_the_table_is_one_batch_table_takes_and_hits_every_measured_winner(
    results: dict[int, dict[int, float]],
) -> None:
    policy = build_baseline("batch_table", {"table": tuned_table(results)})
    for size, throughput in results.items():
        k = TinyEngine(policy, batch=size, kmax=6).step().draft_depth
        assert throughput[k] == max(throughput.values())


@pytest.mark.parametrize(
    "results", [{}, {4: {}}, {0: {1: 1.0}}, {4: {1: float("nan")}}, {4: {-1: 1.0}}, {4: {1: 0.0}}]
)
def test_what_cannot_be_measured_is_one_clear_error(results: dict[int, dict[int, float]]) -> None:
    with pytest.raises(DataError, match=r"throughput|positive size"):
        tuned_table(results)


def test_ranges_may_come_in_any_order_as_vllm_sorts_them():
    k = [
        make("batch_table", table=table).plan(context(9)).draft_depth
        for table in ([[1, 4, 3], [5, 16, 2]], [[5, 16, 2], [1, 4, 3]])
    ]
    assert k == [2, 2]
