"""Drafts that were made and not verified count by their chance of being reached."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.acceptance.passed_over_kernel import passed_over


@pytest.mark.usefixtures("needs_numba")
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(0, 20), kmax=st.integers(1, 9))
def test_both_forms_return_the_same_bits(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    signal = random.normal(0.0, 2.0, (kmax, batch))
    signal[random.random((kmax, batch)) < 0.3] = np.nan
    hazard, of_history = random.uniform(0.01, 0.995, (2, kmax, batch))
    verified = random.integers(0, kmax + 1, batch)
    accepted = random.integers(0, verified + 1)
    found = []
    for form in (passed_over.reference, passed_over.compile()):
        missed, uncertain, anything = form(signal, verified, accepted, hazard, of_history)
        assert anything == bool(uncertain.any())
        found.append(((missed + 0.0).tobytes(), uncertain.tobytes()))  # -0.0 is 0.0
    assert found[0] == found[1]


@pytest.mark.usefixtures("each_form")
def test_drafts_passed_over_count_by_the_chance_of_being_reached() -> None:
    signal = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, np.nan], [0.0, 0.0, 0.0]])
    hazard, of_history = np.full((3, 3), 0.5), np.full((3, 3), 0.25)
    verified, accepted = np.array([1, 2, 1]), np.array([1, 1, 1])
    missed, uncertain, anything = passed_over(signal, verified, accepted, hazard, of_history)
    weight = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    assert anything
    assert missed == pytest.approx(0.25 * weight)
    assert uncertain == pytest.approx(0.25 * 0.75 * weight)
