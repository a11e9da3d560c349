"""Request effects that were not planned with learn the same step, alike in both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.acceptance.follow_kernel import follow


@pytest.mark.usefixtures("needs_numba")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(0, 40), kmax=st.integers(1, 9))
def test_both_forms_return_the_same_bits(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    hazard = random.uniform(0.01, 0.995, (kmax, batch))
    verified = random.integers(0, kmax + 1, batch)
    accepted = np.minimum(random.integers(0, kmax + 1, batch), verified)
    ratio, effect = np.exp(random.normal(size=batch)), random.normal(size=batch)
    evidence = random.exponential(size=batch)
    found = []
    for form in (follow.reference, follow.compile()):
        u, information = effect.copy(), evidence.copy()
        better = form(hazard, verified, accepted, ratio, u, information, 0.4, 0.75)
        found.append((better, u.tobytes(), information.tobytes()))
    assert found[0] == found[1]


@pytest.mark.usefixtures("each_form")
def test_effects_nearer_to_the_outcome_are_found_better() -> None:
    hazard, one = np.full((1, 1), 0.5), np.ones(1, dtype=np.int64)
    for ratio, sign in ((3.0, 1.0), (1.0 / 3.0, -1.0)):
        better = follow(hazard, one, one, np.array([ratio]), np.zeros(1), np.zeros(1), 1.0, 1.0)
        assert better * sign > 0.0
