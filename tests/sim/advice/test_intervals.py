"""Intervals over few worlds."""

from __future__ import annotations

import pytest

from adaptive_spec.sim.advice.intervals import student_t


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(9, 2.262), (19, 2.093), (49, 2.010), (1000, 1.962)]
)
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert student_t(0.95, degrees) == pytest.approx(quantile, rel=2e-3)
