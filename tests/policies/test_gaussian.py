"""A Gaussian belief conditions exactly, keeps coefficients >= 0, and refuses what is no belief."""

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.gaussian import (
    SavedGaussian,
    condition,
    inform,
    likeliest_nonnegative,
    saved_gaussian,
)
from tests.refused import refused

SEEDS = st.integers(0, 2**32 - 1)


def belief(random: np.random.Generator, size: int, shift: float = 0.0):
    """Mean and covariance of a belief whose coefficients hang together."""
    root = random.normal(size=(size, size))
    return random.normal(size=size) + shift, root @ root.T + 0.1 * np.eye(size)


@given(seed=SEEDS, size=st.integers(1, 9), variance=st.floats(1e-6, 1e3))
def test_conditioning_is_the_closed_form(seed: int, size: int, variance: float) -> None:
    random = np.random.default_rng(seed)
    mean, covariance = belief(random, size)
    row = random.normal(size=size) * (random.random(size) < 0.5)
    value = float(random.normal(scale=3.0))
    gain = covariance @ row / (row @ covariance @ row + variance)
    expected = mean + gain * (value - row @ mean)
    left = covariance - np.outer(gain, row @ covariance)
    condition(mean, covariance, row, value, variance)
    assert mean == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert covariance == pytest.approx(left, rel=1e-9, abs=1e-9)


@given(seed=SEEDS, size=st.integers(1, 5))
def test_no_coefficient_is_negative_and_none_moves_where_none_was(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    mean, covariance = belief(random, size)
    before = mean.copy(), covariance.copy()
    found = likeliest_nonnegative(mean, covariance)
    assert found.min() >= 0.0
    assert (mean == before[0]).all()
    assert (covariance == before[1]).all()
    assert likeliest_nonnegative(np.abs(mean), covariance) == pytest.approx(np.abs(mean), abs=0.0)


@given(seed=SEEDS, size=st.integers(2, 5))
def test_one_negative_coefficient_is_conditioned_on_0_and_the_others_follow(
    seed: int, size: int
) -> None:
    random = np.random.default_rng(seed)
    mean, covariance = belief(random, size)
    mean = np.abs(mean) + 20.0
    negative = int(random.integers(size))
    mean[negative] = -0.5
    expected = mean + covariance[:, negative] * 0.5 / covariance[negative, negative]
    assert likeliest_nonnegative(mean, covariance) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_coefficient_furthest_below_0_in_its_own_deviations_comes_first() -> None:
    mean = np.array([-1.0, -0.5, 2.0])
    covariance = np.array([[100.0, 0.5, 0.0], [0.5, 0.01, 0.0], [0.0, 0.0, 1.0]])
    found = likeliest_nonnegative(mean, covariance)
    # The second is 5 deviations below 0, the first a tenth of one: the first moves by 25.
    assert found == pytest.approx([24.0, 0.0, 2.0])


@given(seed=SEEDS, size=st.integers(1, 6))
def test_information_adds_to_the_precision(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    covariance = belief(random, size)[1]
    information = random.uniform(0.0, 5.0, size) * (random.random(size) < 0.7)
    expected = np.linalg.inv(np.linalg.inv(covariance) + np.diag(information))
    inform(covariance, information)
    assert covariance == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_belief_survives_json_with_its_prior() -> None:
    mean, covariance = belief(np.random.default_rng(1), 4)
    made = saved_gaussian(mean, covariance, np.ones(4), 3.0 * np.eye(4))
    text = json.dumps(msgspec.to_builtins(made))
    back = msgspec.convert(json.loads(text), SavedGaussian)
    assert back == made
    assert back.prior_mean == [1.0] * 4
    assert back.prior_covariance == (3.0 * np.eye(4)).tolist()
    found = back.checked(4)
    assert found[0] == pytest.approx(mean, abs=0.0)
    assert found[1] == pytest.approx(covariance, rel=1e-15)


@pytest.mark.parametrize("part", ["", "prior_"])
@pytest.mark.parametrize(
    ("field", "wrong", "said"),
    [
        ("mean", [1.0], "a belief of 1 coefficients, 3 are expected"),
        ("mean", [], "3 are expected"),
        ("covariance", [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], "3 are expected"),
        ("mean", [0.0, math.nan, 0.0], "not finite"),
        ("mean", [0.0, 1e13, 0.0], "beyond all measure"),
        ("covariance", np.diag([1.0, math.inf, 1.0]).tolist(), "not finite"),
        ("covariance", np.diag([1.0, math.nan, 1.0]).tolist(), "not finite"),
        ("covariance", np.diag([1.0, 0.0, 1.0]).tolist(), "not positive"),
        ("covariance", [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "not positive"),
    ],
)
def test_what_is_no_belief_is_refused(part: str, field: str, wrong: object, said: str) -> None:
    mean, covariance = belief(np.random.default_rng(1), 3)
    saved = saved_gaussian(mean, covariance, np.zeros(3), 2.0 * np.eye(3))
    with refused(PolicyError, said):
        msgspec.structs.replace(saved, **{part + field: wrong}).checked(3)


def test_rounding_does_not_make_a_belief_unsound() -> None:
    """A covariance is symmetric and positive within rounding only, after thousands of steps."""
    covariance = np.diag([1.0, 1e-13, 1.0])
    covariance[0, 1] = covariance[1, 0] = 4e-7
    covariance[0, 2] = 1e-12
    made = saved_gaussian(np.zeros(3), covariance, np.zeros(3), np.eye(3))
    found = made.checked(3)[1]
    assert (found == found.T).all()
