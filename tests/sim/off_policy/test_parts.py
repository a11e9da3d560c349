"""Weights, draws and intervals on their own."""

import numpy as np
import pytest

from adaptive_spec.sim.off_policy.intervals import block_of_step, ratio, student_t


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(9, 2.262), (19, 2.093), (49, 2.010), (1000, 1.962)]
)
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert student_t(0.95, degrees) == pytest.approx(quantile, rel=2e-3)


def test_blocks_are_longer_than_a_request_lives_and_at_least_ten() -> None:
    assert np.bincount(block_of_step(4000, 40.0)).min() >= 80
    assert block_of_step(300, 1000.0)[-1] == 9
    assert block_of_step(100_000, 1.0)[-1] == 49


def test_intervals_of_correlated_steps_cover_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    block = block_of_step(1000, 20.0)
    covered = 0
    for _ in range(400):
        shared = np.repeat(random.standard_normal(50), 20)  # twenty steps in a row are alike
        tokens = 10.0 + shared + random.standard_normal(1000)
        seconds = 2.0 + 0.1 * random.standard_normal(1000)
        found = ratio(tokens, seconds).interval(block, 0.95)
        covered += found.low <= 5.0 <= found.high
    assert 0.91 <= covered / 400 <= 0.98


def test_what_two_estimates_share_cancels_in_their_ratio() -> None:
    random = np.random.default_rng(1)
    load = random.uniform(1.0, 5.0, 500)
    one = ratio(1.1 * load + 0.01 * random.standard_normal(500), np.ones(500))
    other = ratio(load, np.ones(500))
    block = block_of_step(500, 1.0)
    gain = one.over(other).interval(block, 0.95)
    alone = one.interval(block, 0.95)
    assert gain.low <= 1.1 <= gain.high
    assert gain.high - gain.low < 0.02 * (alone.high - alone.low)
