"""The change detector: rare false alarms, short delays."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policies.acceptance.change_detection import ChangeDetector


def watch(detector: ChangeDetector, hazard: float, predicted: float, n: int, steps: int) -> int:
    """Alarms in so many steps of n independent observations."""
    random = np.random.default_rng(3)
    variance = n * predicted * (1.0 - predicted)
    alarms = 0
    for accepted in random.binomial(n, hazard, steps):
        alarms += detector.add_surprise(accepted - n * predicted, variance, n)
    return alarms


@pytest.mark.parametrize("hazard", [0.02, 0.1, 0.5, 0.8, 0.98])
@pytest.mark.parametrize("n", [1, 16, 128])
def test_without_a_change_alarms_are_as_rare_as_stated(hazard: float, n: int) -> None:
    steps = 100_000 // n
    detector = ChangeDetector(run_length=1e4, inflation=1.0, largest_step=n)
    # 10 are allowed on average; more than 20 would be a chance of one in a thousand.
    assert watch(detector, hazard, hazard, n, steps) <= 20


@pytest.mark.parametrize(("n", "most_steps"), [(1, 50), (16, 5), (256, 3)])
def test_a_fall_from_80_to_10_per_cent_is_noticed_soon(n: int, most_steps: int) -> None:
    random = np.random.default_rng(4)
    for _ in range(20):
        detector = ChangeDetector()
        watch(detector, 0.8, 0.8, n, 50)
        steps, noticed = 0, False
        while not noticed:
            steps += 1
            accepted = int(random.binomial(n, 0.1))
            noticed = detector.add_surprise(accepted - 0.8 * n, n * 0.16, n)
        assert steps <= most_steps


def test_a_rise_is_noticed_as_well() -> None:
    assert watch(ChangeDetector(), 0.8, 0.1, 8, 20) >= 1


def test_one_odd_step_is_no_change() -> None:
    detector = ChangeDetector(largest_step=8)
    assert not detector.add_surprise(-400.0, 80.0, 500)
    assert not detector.add_surprise(0.0, 80.0, 500)


def test_nothing_and_nonsense_are_ignored() -> None:
    detector = ChangeDetector()
    assert not detector.add_surprise(0.0, 0.0, 0)
    assert not detector.add_surprise(float("nan"), 1.0, 5)
    assert not detector.add_surprise(1.0, float("inf"), 5)


def test_settings_without_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="run_length"):
        ChangeDetector(run_length=0.0)
