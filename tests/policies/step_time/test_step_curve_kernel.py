"""Step times are a curve through knots, alike in both forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.step_time.model import step_curve


@pytest.mark.usefixtures("needs_numba")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_both_forms_return_the_same_bits(seed: int) -> None:
    random = np.random.default_rng(seed)
    knots = np.cumsum(random.integers(1, 50, 6)).astype(np.float64)
    rises = random.exponential(size=5)
    # Captured sizes repeat tokens; some stand on a knot, some past the last one.
    tokens = np.sort(random.choice(np.arange(knots[0], 1.5 * knots[-1]), 30))
    constants = random.exponential(size=3)
    forms = step_curve.reference, step_curve.compile()
    found = [form(tokens, knots, rises, *constants).tobytes() for form in forms]
    assert found[0] == found[1]


@pytest.mark.usefixtures("each_form")
def test_step_times_run_through_the_knots_and_on_past_the_last() -> None:
    knots, rises = np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.0])
    tokens = np.array([1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    seconds = step_curve(tokens, knots, rises, 10.0, 100.0, 0.0)
    assert seconds.tolist() == [100.0, 100.5, 101.0, 103.0, 105.0, 125.0]


@pytest.mark.usefixtures("each_form")
def test_the_first_draft_of_a_step_costs_extra_and_no_step_is_free() -> None:
    knots, rises = np.array([1.0, 2.0]), np.zeros(1)
    seconds = step_curve(np.array([1.0, 2.0, 3.0]), knots, rises, 0.0, -5.0, 6.0)
    assert seconds.tolist() == [1e-6, 1.0, 1.0]
