"""The best plan in one call is that of the planner, by the worth of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.planning.planner import best_plan
from adaptive_spec.policies.planning.shared_k import best_admission, token_worth
from adaptive_spec.step import Capability, Level


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 40),
    kmax=st.integers(1, 8),
    level=st.sampled_from([Level.VERIFY, Level.FULL]),
    dear=st.floats(0.0, 1.0),
    opted_out=st.sampled_from([0.0, 0.4]),
)
def test_it_chooses_what_the_planner_does(
    seed: int, batch: int, kmax: int, level: Level, dear: float, opted_out: float
) -> None:
    random = np.random.default_rng(seed)
    engine = Capability(level=level, max_draft_tokens=kmax)
    survival = np.cumprod(random.uniform(0.01, 0.995, (kmax, batch)), axis=0)
    taking_part = random.random(batch) >= opted_out
    taking_part[random.integers(batch)] = True
    possible, available = random.integers(0, kmax + 1, (2, batch)) * taking_part
    verify_seconds = 1.0 + np.cumsum(random.exponential(dear / batch, batch * kmax + 1))
    drafting = np.cumsum(random.uniform(0.0, 0.1, kmax + 1))
    depths = np.arange(kmax + 1) if engine.steers_depth else np.array([kmax])
    weights = np.empty(batch)
    costs = verify_seconds, drafting, depths, engine.steers_depth, taking_part
    verify, depth, value, seconds, tokens, by_worth = best_plan(
        survival, possible, available, *costs, weights
    )
    # Whether to draft at all is not decided by what a token is worth.
    assert verify.any() or (depth and engine.steers_depth) or not by_worth
    worth = token_worth(survival, verify_seconds, drafting, engine, taking_part)
    assert weights == pytest.approx(worth if by_worth else taking_part.astype(float))
    expected = best_admission(
        survival * weights, weights, possible, available, verify_seconds, drafting, engine
    )
    assert (verify.tolist(), depth) == (expected.verify.tolist(), expected.draft_depth)
    assert (value, seconds) == pytest.approx((expected.tokens, expected.seconds))
    reached = np.arange(kmax)[:, None] < expected.verify
    assert tokens == pytest.approx(batch + survival[reached].sum())
