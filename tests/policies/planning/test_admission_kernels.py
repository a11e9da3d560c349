"""The planner's search is the same in both forms, whatever arrays an adapter has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.planning.planner import admit, rank


@pytest.mark.usefixtures("needs_numba")
@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(0, 70) | st.integers(200, 220),
    kmax=st.integers(1, 8),
    coarse=st.booleans(),
)
def test_both_forms_choose_the_same(seed: int, batch: int, kmax: int, coarse: bool) -> None:
    random = np.random.default_rng(seed)
    hazard = random.random((kmax, batch))
    if coarse:  # many exact ties
        hazard = np.round(hazard * 4) / 4
    values = np.ascontiguousarray(np.cumprod(hazard, axis=0))
    possible = random.integers(0, kmax + 1, batch)
    available = random.integers(0, kmax + 1, batch)
    verify = random.uniform(1.0, 1.0 + random.random(), batch * kmax + 1)
    drafting = np.cumsum(random.uniform(0.0, 0.1, kmax + 1))
    limit = np.maximum(possible, available)
    costs = float(batch), verify, drafting, np.arange(kmax + 1)
    found = []
    for sort, choose in ((rank.reference, admit.reference), (rank.compile(), admit.compile())):
        drafts = sort(values, limit)
        verified, *rest = choose(*drafts, possible, available, *costs)
        found.append(([each.tolist() for each in drafts], verified.tolist(), rest))
    assert found[0] == found[1]


@pytest.mark.usefixtures("each_form")
def test_drafts_are_ranked_by_value_then_position_then_request() -> None:
    values = np.array([[0.5, 0.9, 0.5], [0.5, 0.1, -0.0]])
    position, request, value = rank(values, np.array([2, 1, 2]))
    assert position.tolist() == [0, 0, 0, 1, 1]
    assert request.tolist() == [1, 0, 2, 0, 2]
    assert value.tolist() == [0.9, 0.5, 0.5, 0.5, 0.0]


@pytest.mark.usefixtures("each_form")
def test_narrow_strided_integers_are_taken() -> None:
    limit = np.repeat(np.array([2, 1]), 3).astype(np.int32)[::3]
    position, _, _ = rank(np.array([[0.5, 0.9], [0.4, 0.1]]), limit)
    assert position.tolist() == [0, 0, 1]
