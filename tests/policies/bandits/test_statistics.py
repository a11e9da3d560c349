"""The sums that bandits learn from, held against counting anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.bandits.linucb import RidgeRegressions

KMAX = 5
steps = st.lists(
    st.tuples(st.integers(0, KMAX), st.integers(0, KMAX)).map(lambda p: (max(p), min(p))),
    min_size=1,
    max_size=12,
)


@given(steps)
def test_a_step_shows_the_positions_up_to_the_first_that_failed(pairs: list) -> None:
    verified, accepted = np.array(pairs, dtype=np.int64).T
    memory = HazardCounts(KMAX, discount=1.0)
    memory.count_outcomes(verified, accepted)
    for j in range(KMAX):
        assert memory.seen[j] == sum(j < min(a + 1, k) for k, a in pairs)
        assert memory.succeeded[j] == sum(j < a for _, a in pairs)


def test_faded_counts_are_a_weighted_sum() -> None:
    memory = HazardCounts(2, discount=0.5)
    for accepted in (1, 0, 1):
        memory.count_outcomes(np.array([1]), np.array([accepted]))
    assert memory.seen[0] == pytest.approx(1.75)
    assert memory.succeeded[0] == pytest.approx(1.25)
    memory.count_outcomes(np.array([0]), np.array([0]))
    assert memory.seen[0] == pytest.approx(1.75), "nothing seen, nothing forgotten"


def test_regressions_find_the_coefficients_and_how_sure_they_are() -> None:
    random = np.random.default_rng(0)
    truth = np.array([[1.0, -0.5], [0.2, 2.0]])
    ridges = RidgeRegressions(2, 2, ridge=1e-6, discount=1.0, guess=np.zeros(2))
    seen_rows: list[list[np.ndarray]] = [[], []]
    for _ in range(50):
        rows = random.standard_normal((4, 2))
        seen = random.random((2, 4)) < 0.7
        ridges.add_observations(rows, truth @ rows.T, seen)
        for at in range(2):
            seen_rows[at].extend(rows[seen[at]])
    assert ridges.coefficients == pytest.approx(truth, abs=1e-4)
    row = random.standard_normal((1, 2))
    for at in range(2):
        gram = np.array(seen_rows[at]).T @ np.array(seen_rows[at])
        assert ridges.deviation(row)[at, 0] ** 2 == pytest.approx(
            (row @ np.linalg.inv(gram) @ row.T).item(), rel=1e-4
        )
