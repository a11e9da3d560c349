"""Logits become hazards, and hazards survivals, alike in both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.acceptance.hazard_kernels import (
    HAZARD_CEILING,
    HAZARD_FLOOR,
    logits_to_hazards,
    negated_logits,
    odds_to_hazards,
    survive,
)


@pytest.mark.usefixtures("needs_numba")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(0, 40), kmax=st.integers(1, 9))
def test_both_forms_return_the_same_bits(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    odds = np.exp(random.normal(0.0, 5.0, (kmax, batch)))
    odds[random.random((kmax, batch)) < 0.05] = np.nan
    found = []
    for turn, multiply in (
        (odds_to_hazards.reference, survive.reference),
        (odds_to_hazards.compile(), survive.compile()),
    ):
        array = odds.copy()
        turn(array)
        multiply(array)
        found.append(array.tobytes())
    assert found[0] == found[1]


@pytest.mark.usefixtures("needs_numba")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(0, 40), places=st.sampled_from([0, 3, 8]))
def test_logits_are_the_same_bits_in_both_forms(seed: int, batch: int, places: int) -> None:
    random = np.random.default_rng(seed)
    slots, task = random.integers(0, 40, batch), random.integers(-1, 20, batch)
    position, request, label = (random.normal(size=size) for size in (5, 30, places))
    number = np.arange(places) + 8 * random.integers(0, 2, places)
    given_arrays = position, slots, request, task, number, label
    found = np.empty((2, 5, batch))
    negated_logits.reference(*given_arrays, 8, found[0])
    negated_logits.compile()(*given_arrays, 8, found[1])
    assert found[0].tobytes() == found[1].tobytes()
    beyond = slots >= len(request)
    if not places:
        assert (found[0][:, beyond] == -position[:, None]).all(), "unknown requests have no effect"


@pytest.mark.usefixtures("each_form")
def test_hazards_are_the_logistic_of_their_logits_within_bounds() -> None:
    hazard = np.array([[-30.0, 0.0, np.nan], [1.0, 30.0, 0.0]])
    logits_to_hazards(hazard)
    expected = [[HAZARD_FLOOR, 0.5, np.nan], [0.7310586, HAZARD_CEILING, 0.5]]
    assert hazard == pytest.approx(np.array(expected), nan_ok=True)


@pytest.mark.usefixtures("each_form")
def test_survival_is_the_product_of_the_hazards_above() -> None:
    hazard = np.array([[0.5, 1.0], [0.5, 0.2], [0.1, 0.5]])
    survive(hazard)
    assert hazard == pytest.approx(np.array([[0.5, 1.0], [0.25, 0.2], [0.025, 0.1]]))
