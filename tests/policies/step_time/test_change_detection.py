"""Step times that move are noticed at once; noise and hiccups are not taken for it."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policies.step_time.change_detection import MisfitWatch, StepTimeWatch


def noisy(seconds: float, random: np.random.Generator) -> float:
    """A step's duration, with 4 % of noise, and a hiccup of the machine now and then."""
    measured = seconds * float(np.exp(0.04 * random.standard_normal()))
    return measured * (5.0 if random.random() < 0.02 else 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_noise_and_hiccups_are_no_change(seed: int) -> None:
    random = np.random.default_rng(seed)
    watch = StepTimeWatch()
    found = [watch.observe(noisy(0.01, random), 0.01, 0.03) for _ in range(20_000)]
    assert set(found) == {None}


def test_a_few_slow_steps_in_a_row_are_no_change() -> None:
    watch = StepTimeWatch()
    for _ in range(20):
        assert [watch.observe(0.1, 0.01, 0.03) for _ in range(5)] == [None] * 5
        assert [watch.observe(0.01, 0.01, 0.03) for _ in range(40)] == [None] * 40


@pytest.mark.parametrize("factor", [1 / 30, 0.5, 0.65, 1.5, 2.0, 30.0])
def test_a_change_is_noticed_within_thirty_steps_and_its_size_is_known(factor: float) -> None:
    random = np.random.default_rng(1)
    watch = StepTimeWatch()
    for _ in range(200):
        assert watch.observe(noisy(0.01, random), 0.01, 0.03) is None
    found = [watch.observe(noisy(0.01 * factor, random), 0.01, 0.03) for _ in range(30)]
    (reported,) = [each for each in found if each is not None][:1]
    assert reported == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize("factor", [0.94, 1.06])
def test_a_level_that_is_off_by_less_than_a_tenth_is_no_change(factor: float) -> None:
    random = np.random.default_rng(2)
    watch = StepTimeWatch()
    found = [watch.observe(noisy(0.01 * factor, random), 0.01, 0.03) for _ in range(5_000)]
    assert set(found) == {None}


@pytest.mark.parametrize("factor", [0.83, 1.17])
def test_a_change_of_a_sixth_is_noticed_within_160_steps(factor: float) -> None:
    random = np.random.default_rng(3)
    watch = StepTimeWatch()
    for _ in range(1_000):
        assert watch.observe(noisy(0.01, random), 0.01, 0.03) is None
    found = [watch.observe(noisy(0.01 * factor, random), 0.01, 0.03) for _ in range(160)]
    assert any(found)


def test_a_level_that_wanders_for_ever_is_seldom_taken_for_a_change() -> None:
    random = np.random.default_rng(4)
    watch, level, found = StepTimeWatch(), 0.0, 0
    for _ in range(10_000):
        level = 0.98 * level + 0.02 * random.standard_normal()  # by 10 %, with a memory of 50
        found += watch.observe(noisy(0.01 * np.exp(level), random), 0.01, 0.03) is not None
    assert found <= 30  # of 200 stretches that long


def test_a_fit_that_stays_wrong_is_noticed_ever_later() -> None:
    watch = MisfitWatch()
    noticed = [n for n in range(1, 500) if watch.observe(0.2)]
    assert noticed == [64, 64 + 128, 64 + 128 + 256]
    watch = MisfitWatch()
    assert not any(watch.observe(0.2 if n % 60 else 0.05) for n in range(1, 500))
