"""The belief about step times is calibrated, also after a change."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_spec.policies.step_time.belief import (
    SIZE,
    Belief,
    condition,
    covariances,
    expect,
    features_of,
    features_of_plans,
    spread_of,
)
from adaptive_spec.step import StepOutcome
from tests.measured_steps import step
from tests.policies.two_forms import agree

NOISE = 0.03
NORMAL_90 = 1.645


def world(batch: int, k: int, level: float = 1.0) -> float:
    return level * (0.01 + 1e-4 * batch * (1 + k) + 5e-4 * max(k, 1))


class Observer:
    """Shows steps to a belief; keeps whether its 90 % interval held each."""

    def __init__(self, seed: int = 0) -> None:
        self.belief = Belief(3.0)
        self.random = np.random.default_rng(seed)
        self.covered: list[bool] = []
        self._begun = False

    def features(self, outcome: StepOutcome) -> np.ndarray:
        return features_of(outcome, outcome.batch_tokens, max(outcome.draft_depth, 1))

    def show(self, batch: int, k: int, seconds: float) -> bool:
        outcome = step(batch, k, k, seconds * math.exp(NOISE * self.random.standard_normal()))
        features = self.features(outcome)
        if not self._begun:
            self.belief.begin_with_step(outcome, outcome.seconds)
            self._begun = True
        expected = float(features @ self.belief.coefficients)
        variance = self.belief.relative_variance(features, expected)
        deviation = math.sqrt(variance + self.belief.error_of(outcome, expected))
        self.covered.append(abs(outcome.seconds / expected - 1.0) < NORMAL_90 * deviation)
        return self.belief.learn_step_time(outcome, features, outcome.seconds)

    def error(self, batch: int, k: int, other: int) -> float:
        """Standard deviation of the logarithm of T(k) / T(other)."""
        rows = np.array([self.features(step(batch, each, each, 1.0)) for each in (k, other)])
        _, covariance, _ = self.belief.covariance(rows)
        return math.sqrt(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1])


@pytest.mark.parametrize("batch", [1, 16, 200])
@pytest.mark.parametrize("level", [0.2, 0.7, 1.5, 10.0])
def test_intervals_hold_nine_steps_of_ten_also_after_a_change(batch: int, level: float) -> None:
    late, overall = [], []
    for seed in range(4):
        one = Observer(seed)
        for n in range(300):
            one.show(batch, (2, 2, 2, 3, 0, 6)[n % 6], world(batch, (2, 2, 2, 3, 0, 6)[n % 6]))
        overall += one.covered[1:]
        one.covered.clear()
        for n in range(50):
            k = (2, 2, 2, 3, 0, 6)[n % 6]
            one.show(batch, k, world(batch, k, level))
        late += one.covered
    assert 0.85 <= np.mean(overall) <= 0.95
    assert 0.83 <= np.mean(late) <= 0.97


def test_what_is_not_run_becomes_uncertain() -> None:
    one = Observer()
    for n in range(60):
        one.show(16, n % 4, world(16, n % 4))
    before = one.error(16, 3, 1)
    for _ in range(2000):
        one.show(16, 1, world(16, 1))
    assert one.error(16, 3, 1) > 1.2 * before


def test_a_level_that_wanders_makes_no_k_uncertain() -> None:
    def error(spread: float) -> float:
        one, level, keep = Observer(), 0.0, 0.98
        for n in range(600):
            level = keep * level + spread * one.random.standard_normal()
            one.show(16, n % 4, world(16, n % 4, math.exp(level)))
        return one.error(16, 3, 1)

    assert error(0.03) < 2.0 * error(0.0)


def test_one_odd_step_moves_little_even_after_a_jump() -> None:
    one = Observer()
    for _ in range(200):
        one.show(16, 2, world(16, 2))
    jumped = [one.show(16, 2, world(16, 2, 2.0)) for _ in range(4)]
    assert sum(jumped) == 1
    one.show(16, 2, 3.0 * world(16, 2, 2.0))
    expected = float(one.features(step(16, 2, 2, 1.0)) @ one.belief.coefficients)
    assert expected == pytest.approx(world(16, 2, 2.0), rel=0.15)


def test_steps_that_do_not_change_do_not_jump() -> None:
    for seed in range(3):
        one = Observer(seed)
        assert not any(one.show(16, n % 4, world(16, n % 4)) for n in range(1500))


def test_coefficients_keep_their_bounds_and_explain_what_is_seen() -> None:
    """Most of a step falls away: no coefficient may go below zero, and the sum has to fit."""
    one = Observer()
    for _ in range(300):
        one.show(238, 5, world(238, 5))
    for n in range(25):
        one.show(238 - n % 8, 5, world(238 - n % 8, 5, 0.3))
    expected = float(one.features(step(236, 5, 5, 1.0)) @ one.belief.coefficients)
    assert expected == pytest.approx(world(236, 5, 0.3), rel=0.06)
    assert one.belief.coefficients[8:].min() >= 0.0


def test_a_plan_has_the_features_of_the_step_that_runs_it() -> None:
    steps = [step(8, k, depth, 1.0) for k, depth in ((0, 1), (2, 2), (300, 5))]
    tokens = np.array([float(each.batch_tokens) for each in steps])
    passes = np.array([float(each.draft_depth) for each in steps])
    found = features_of_plans(8, tokens > 8, steps[0].context_tokens, tokens, passes)
    for row, ran, n, d in zip(found, steps, tokens, passes, strict=True):
        assert row.tolist() == features_of(ran, n, d).tolist()


@pytest.mark.usefixtures("needs_numba")
def test_both_forms_of_what_is_believed_of_plans_agree() -> None:
    random = np.random.default_rng(2)
    root, tokens = random.standard_normal((SIZE, SIZE)), np.array([1.0, 2.0, 7.0, 64.0, 1e4])
    agree(features_of_plans, 8, tokens > 8, 500, tokens, np.arange(5.0))
    agree(spread_of, 8.0, 500.0, 32.0, 3.0, 0.02)
    rows = features_of_plans(8, tokens > 8, 500, tokens, np.arange(5.0))
    spread = spread_of(8.0, 500.0, 32.0, 3.0, 0.02)
    agree(covariances, rows, np.abs(root[0]), root @ root.T, spread)


def test_both_forms_of_the_filter_agree() -> None:
    random = np.random.default_rng(1)
    root = random.standard_normal((SIZE, SIZE))
    least = np.where(np.arange(SIZE) < 6, -0.1, 0.0)
    states = [
        [random_mean.copy(), root @ root.T, np.zeros(SIZE), least.copy(), random_mean.copy()]
        for random_mean in [np.abs(random.standard_normal(SIZE))] * 2
    ]
    for _ in range(20):
        features, seconds = np.abs(random.standard_normal(SIZE)), float(random.uniform(0.1, 5.0))
        expected = []
        for form, state in zip((expect.reference, expect.loop), states, strict=True):
            expected.append(form(state[4], state[1], features, 1e-3))
        assert expected[0] == pytest.approx(expected[1])
        for form, state in zip((condition.reference, condition.loop), states, strict=True):
            form(*state, features, seconds, 0.01)
    for one, other in zip(*states, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_after_a_jump_other_loads_are_believed_to_have_changed_as_much() -> None:
    """The common level takes up the jump; parts of a step would be taken for far dearer."""
    seen = Observer()
    for n in range(200):
        batch = (8, 64)[n % 2]
        seen.show(batch, n % 3, world(batch, n % 3))
    other = seen.features(step(64, 1, 1, 1.0))
    before = float(other @ seen.belief.coefficients)
    assert any(seen.show(8, 1, world(8, 1, 4.0)) for _ in range(10))
    assert 2.5 < float(other @ seen.belief.coefficients) / before < 6.5
