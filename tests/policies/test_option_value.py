"""What may be left out later is worth more beforehand, by as much as confidence tells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.kernels import numba_available
from adaptive_spec.policies.goodput.option_value import OptionValue, tell

KMAX, BATCH, PRICE = 3, 64, 0.4
PRICES = np.full(KMAX, PRICE)


def learned(spread: float, steps: int = 200, seed: int = 0) -> OptionValue:
    """Survival given confidences lies `spread` of the way from its mean to 0 or 1."""
    random = np.random.default_rng(seed)
    option = OptionValue(KMAX)
    for _ in range(steps):
        mean = random.uniform(0.1, 0.9, (KMAX, BATCH))
        sure = (random.random((KMAX, BATCH)) < mean).astype(np.float64)
        known = random.random((KMAX, BATCH)) < 0.8
        option.learn(mean, mean + spread * (sure - mean), known, PRICES)
    return option


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0), st.floats(0.01, 1.0))
def test_it_lies_between_nothing_told_and_everything_told(
    seed: int, spread: float, price: float
) -> None:
    survival = np.random.default_rng(seed).random((KMAX, BATCH))
    option = learned(spread, steps=5, seed=seed).of(survival, np.full(KMAX, price))
    assert (option >= np.maximum(price - survival, 0.0) - 1e-12).all()
    assert (option <= price * (1.0 - survival) + 1e-12).all()


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_signal_that_tells_all_or_nothing_is_found_to(spread: float) -> None:
    survival = np.linspace(0.05, 0.95, BATCH) * np.ones((KMAX, 1))
    expected = PRICE * (1.0 - survival) if spread else np.maximum(PRICE - survival, 0.0)
    assert learned(spread).of(survival, PRICES) == pytest.approx(expected, abs=0.04)


def test_more_that_is_told_is_worth_more() -> None:
    survival = np.full((KMAX, 1), 0.5)
    values = [float(learned(spread).of(survival, PRICES)[0, 0]) for spread in (0.2, 0.5, 0.8)]
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_before_anything_is_seen_only_what_surely_fails_is_left_out() -> None:
    survival = np.array([[0.1], [0.5], [0.9]])
    assert OptionValue(KMAX).of(survival, PRICES)[:, 0] == pytest.approx([0.3, 0.0, 0.0])


def test_a_price_that_no_draft_can_reach_does_no_harm() -> None:
    option, survival = learned(0.5), np.full((KMAX, BATCH), 0.3)
    dear = np.full(KMAX, 3.0)
    for _ in range(200):
        option.learn(survival, survival, np.ones_like(survival, dtype=np.bool_), dear)
    assert option.of(survival, dear) == pytest.approx(np.full((KMAX, BATCH), 2.7))
    assert (option.told >= 0.0).all()
    assert (option.told <= 1.0).all()


@pytest.mark.skipif(not numba_available(), reason="numba is not installed")
@given(st.integers(0, 2**32 - 1), st.integers(0, 20), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_both_forms_learn_the_same_to_the_last_bit(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    survival, after = random.uniform(0.01, 0.995, (2, kmax, batch))
    known, prices = random.random((kmax, batch)) < 0.7, np.linspace(0.1, 1.2, kmax)
    found = []
    for form in (tell.reference, tell.compile()):
        told = np.random.default_rng(seed).uniform(0.0, 9.0, (3, kmax))
        form(survival, after, known, prices, *told, 5.0)
        found.append(told.tobytes())
    assert found[0] == found[1]
