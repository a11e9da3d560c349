"""Confidence weights are fitted within bounds, pooled and averaged alike in both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.acceptance.confidence_kernels import follow_means, pool, weigh


@pytest.mark.usefixtures("needs_numba")
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(0, 20), kmax=st.integers(1, 9))
def test_both_forms_return_the_same_bits(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    signal = random.normal(0.0, 2.0, (kmax, batch))
    signal[random.random((kmax, batch)) < 0.3] = np.nan
    residual, information = random.normal(size=(kmax, batch)), random.random((kmax, batch))
    found = []
    for update, combine, average in (
        (weigh.reference, pool.reference, follow_means.reference),
        (weigh.compile(), pool.compile(), follow_means.compile()),
    ):
        changed = np.random.default_rng(seed)
        own, evidence = changed.uniform(0.0, 4.0, kmax), changed.uniform(0.0, 99.0, kmax)
        weight = np.empty_like(own)
        update(signal, residual, information, own, evidence, 4.0, 50.0, 4.0)
        combine(own, evidence, weight, 4.0, 20.0)
        mean, count = changed.normal(size=kmax), changed.uniform(0.0, 9.0, kmax)
        average(signal, mean, count, 10.0)
        results = own, evidence, weight, mean, count
        found.append(b"".join(each.tobytes() for each in results))
        assert own.min() >= 0.0
        assert own.max() <= 4.0
    assert found[0] == found[1]


@pytest.mark.usefixtures("each_form")
def test_a_weight_grows_only_where_the_signal_was_right() -> None:
    signal, information = np.array([[1.0, np.nan], [np.nan, np.nan]]), np.full((2, 2), 0.25)
    weight, evidence = np.zeros(2), np.zeros(2)
    weigh(signal, np.full((2, 2), 0.5), information, weight, evidence, 4, 50, 4)
    assert weight.tolist() == [pytest.approx(0.5 / 4.25), 0.0]
    assert evidence.tolist() == [0.25, 0.0]


@pytest.mark.usefixtures("each_form")
def test_positions_without_evidence_take_the_weight_of_the_others() -> None:
    weight = np.empty(2)
    pool(np.array([2.0, 0.0]), np.array([1e9, 0.0]), weight, 4.0, 20.0)
    assert weight == pytest.approx(np.array([2.0, 2.0]))


@pytest.mark.usefixtures("each_form")
def test_means_follow_the_known_values() -> None:
    mean, count = np.zeros(2), np.zeros(2)
    follow_means(np.array([[1.0, 3.0, np.nan], [np.nan] * 3]), mean, count, 10.0)
    assert mean.tolist() == [2.0, 0.0]
    assert count.tolist() == [2.0, 0.0]
