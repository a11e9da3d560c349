"""Descent on the normal equations finds bounded least squares, alike in both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.step_time.normal_equations import absorb, descend


@pytest.mark.usefixtures("needs_numba")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 27))
def test_both_forms_return_the_same_bits(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    design = random.random((40, size))
    least = -0.1 * random.integers(0, 2, size)
    along = random.random(size) * random.integers(0, 2, size)
    found = []
    for add, improve in (
        (absorb.reference, descend.reference),
        (absorb.compile(), descend.compile()),
    ):
        gram, moment = design.T @ design, design.sum(axis=0)
        coefficients = np.zeros(size)
        add(gram, moment, design[0], 0.3, -0.7)
        for _ in range(20):
            improve(gram, moment, coefficients, least, along)
        assert (coefficients >= least).all()
        results = gram, moment, coefficients + 0.0  # -0.0 is 0.0
        found.append(b"".join(each.tobytes() for each in results))
    assert found[0] == found[1]


@pytest.mark.usefixtures("each_form")
def test_what_is_taken_out_again_leaves_nothing() -> None:
    gram, moment = np.zeros((2, 2)), np.zeros(2)
    features = np.array([1.0, 2.0])
    absorb(gram, moment, features, 3.0, 0.5)
    assert gram.tolist() == [[0.5, 1.0], [1.0, 2.0]]
    assert moment.tolist() == [1.5, 3.0]
    absorb(gram, moment, features, 3.0, -0.5)
    assert not gram.any()
    assert not moment.any()


@pytest.mark.usefixtures("each_form")
def test_descent_reaches_the_solution_within_bounds() -> None:
    design = np.random.default_rng(0).random((50, 3))
    truth = np.array([1.0, -2.0, 0.5])
    gram, moment = design.T @ design, design.T @ (design @ truth)
    free, bounded = np.zeros(3), np.zeros(3)
    for _ in range(2000):
        descend(gram, moment, free, np.full(3, -9.0), np.ones(3))
        descend(gram, moment, bounded, np.zeros(3), np.ones(3))
    assert free == pytest.approx(truth)
    assert bounded.min() == 0.0
    gradient = gram @ bounded - moment
    assert (gradient >= -1e-9).all(), "no coefficient could rise with profit"
    assert bounded @ gradient == pytest.approx(0.0, abs=1e-9)


@pytest.mark.usefixtures("each_form")
def test_coordinates_that_hold_one_another_move_together_within_bounds() -> None:
    held = 1000.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    gram, along = held + np.eye(2), np.ones(2)
    alone, together, bounded = np.zeros(2), np.zeros(2), np.zeros(2)
    descend(gram, np.ones(2), alone, np.full(2, -9.0), np.zeros(2))
    descend(gram, np.ones(2), together, np.full(2, -9.0), along)
    descend(gram, -np.ones(2), bounded, np.full(2, -0.5), along)
    assert alone.max() < 0.01
    assert together == pytest.approx([1.0, 1.0], rel=0.01)
    assert bounded.min() == -0.5
