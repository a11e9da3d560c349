"""A prediction takes another's place only if it gives more probability to what happens."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.acceptance.model_selection import PredictionGain
from adaptive_spec.errors import PolicyError

SHAPE = 4, 32
SEEN = np.ones(SHAPE, dtype=np.bool_)


def compare(gain: PredictionGain, better: float, steps: int, seed: int = 0) -> None:
    """Outcomes of hazards .3 and .7; one prediction knows `better` of the difference."""
    random = np.random.default_rng(seed)
    flat = np.full(SHAPE, 0.5)
    for _ in range(steps):
        truth = random.choice([0.3, 0.7], SHAPE)
        gain.see(0.5 + better * (truth - 0.5), flat, random.random(SHAPE) < truth, SEEN)


def test_a_prediction_that_knows_more_is_proven() -> None:
    gain = PredictionGain()
    assert not gain.proven
    compare(gain, 1.0, 10)
    assert gain.proven


@pytest.mark.parametrize("better", [0.0, -0.5, 2.4])
def test_one_that_knows_nothing_or_the_wrong_way_or_exaggerates_is_not(better: float) -> None:
    gain = PredictionGain()
    for seed in range(200):
        compare(gain, better, 1, seed)
        assert not gain.proven


def test_a_small_gain_is_not_enough_however_certain() -> None:
    gain = PredictionGain()
    compare(gain, 0.15, 400)
    _count, loss, saved, squares = gain.state()
    assert saved > 3.0 * squares**0.5
    assert saved < 0.04 * loss
    assert not gain.proven


def test_what_no_longer_holds_is_found_out() -> None:
    gain = PredictionGain()
    compare(gain, 1.0, 400)
    compare(gain, -1.0, 20, seed=1)
    assert not gain.proven


@given(st.integers(0, 2**32 - 1))
def test_drafts_without_an_outcome_do_not_count(seed: int) -> None:
    random = np.random.default_rng(seed)
    seen = random.random(SHAPE) < 0.5
    first, second = PredictionGain(), PredictionGain()
    prediction, other = random.uniform(0.01, 0.99, (2, *SHAPE))
    accepted = random.random(SHAPE) < 0.5
    first.see(prediction, other, accepted, seen)
    second.see(np.where(seen, prediction, 0.9), other, np.where(seen, accepted, True), seen)
    assert first.state() == second.state()


def test_the_state_round_trips() -> None:
    gain, again = PredictionGain(), PredictionGain()
    compare(gain, 1.0, 10)
    again.restore(json.loads(json.dumps(gain.state())))
    assert again.state() == gain.state()
    assert again.proven


@pytest.mark.parametrize(
    "state", [[], [1.0] * 3, [1.0, -1.0, 0.0, 0.0], [1.0, float("nan"), 0.0, 0.0], None, ["x"] * 4]
)
def test_a_state_that_does_not_fit_is_refused(state: list[float]) -> None:
    with pytest.raises(PolicyError, match="gain of a prediction"):
        PredictionGain().restore(state)
