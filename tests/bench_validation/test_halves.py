from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.validation.halves import halves
from tests.sim.acceptance.fake_records import data_of


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=20), st.integers(0, 99))
def test_halves_split_the_records_evenly_in_number_and_length(lengths, seed):
    records = [[0] * length for length in lengths]
    data = replace(data_of(*records), labels=tuple(map(str, range(len(records)))))
    first, second = halves(data, seed)
    assert sorted(first.labels + second.labels) == sorted(data.labels)
    assert 0 <= second.records - first.records <= 1
    # Neighbours in length are split, so the totals differ by no more than the longest.
    assert abs(int(first.lengths.sum()) - int(second.lengths.sum())) <= max(lengths) * 2
    assert halves(data, seed)[0].labels == first.labels


def test_one_record_can_not_be_halved():
    with pytest.raises(ValueError, match="halved"):
        halves(data_of([1, 0]), 0)
