"""Drafts that were made and not verified count by their chance of being reached."""

import numpy as np
import pytest

from adaptive_spec.policies.acceptance.model import passed_over


def test_drafts_passed_over_count_by_the_chance_of_being_reached() -> None:
    signal = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, np.nan], [0.0, 0.0, 0.0]])
    hazard, of_history = np.full((3, 3), 0.5), np.full((3, 3), 0.25)
    verified, accepted = np.array([1, 2, 1]), np.array([1, 1, 1])
    missed, uncertain, anything = passed_over(signal, verified, accepted, hazard, of_history)
    weight = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    assert anything
    assert missed == pytest.approx(0.25 * weight)
    assert uncertain == pytest.approx(0.25 * 0.75 * weight)
