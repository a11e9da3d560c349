"""Exploration is bounded, random, and says with what probability it chose."""

import numpy as np
import pytest

from adaptive_spec.policies.planning.exploration import Explorer
from adaptive_spec.step import Capability, Level

FULL = Capability(level=Level.FULL, max_draft_tokens=4)


@pytest.mark.parametrize("batch", [1, 3, 8, 64])
def test_propensities_match_how_often_requests_are_chosen(batch: int) -> None:
    explorer = Explorer(FULL, seed=0)
    verify, available = np.ones(batch, dtype=np.int64), np.full(batch, 2, dtype=np.int64)
    chosen = np.zeros(batch)
    claimed = []
    rounds = 4000
    for _ in range(rounds):
        extended, propensity = explorer.extend(verify, available)
        chosen += extended - verify
        claimed.append(propensity[extended > verify].mean())
    assert chosen.mean() / rounds == pytest.approx(np.mean(claimed), abs=0.02)


def test_nobody_verifies_more_than_is_at_hand() -> None:
    explorer = Explorer(FULL, seed=1)
    random = np.random.default_rng(0)
    for _ in range(500):
        available = random.integers(0, 5, 9)
        verify = np.minimum(random.integers(0, 5, 9), available)
        extended, propensity = explorer.extend(verify, available)
        assert (extended <= available).all()
        assert ((extended - verify) <= 1).all()
        assert ((propensity > 0) & (propensity <= 1)).all()


def test_a_uniform_engine_explores_with_the_next_rung() -> None:
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=4, ladder=(0, 2, 4))
    explorer = Explorer(uniform, seed=0)
    available = np.array([4, 4, 1])
    extended, _ = explorer.extend(np.array([0, 0, 0]), available)
    assert extended.tolist() == [2, 2, 1]


def test_padding_is_filled_and_never_overfilled() -> None:
    padded = Capability(level=Level.FULL, max_draft_tokens=4, token_buckets=(4, 8, 16))
    explorer = Explorer(padded, seed=0)
    verify, available = np.array([1, 1, 0]), np.array([4, 4, 4])
    filled = explorer.fill_padding(verify, available)  # 5 tokens run as 8: 3 are free
    assert int(filled.sum()) == 5
    assert ((filled - verify) <= 1).all()
    exact = np.array([2, 2, 1])  # 8 tokens
    assert explorer.fill_padding(exact, available).tolist() == exact.tolist()
