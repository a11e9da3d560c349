"""AdaEDL's bound and its adapted threshold."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policy import Policy

from .baseline_support import (
    KMAX,
    context,
    finished,
    live_drafts,
    make,
)

ADAEDL = "adaedl"


def entropy_at(threshold: float, gamma: float = 0.2) -> float:
    """Entropy whose bound is the threshold."""
    return (1.0 - threshold) ** 2 / gamma


def threshold_of(policy: Policy) -> float:
    """lambda of slot 0, found from outside: the entropy at which one draft becomes two."""
    policy.plan(context(entropy=np.full((1, KMAX), 0.1)))  # the next drafts are made with it
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2.0
        signal = np.full((1, KMAX), 0.0)
        signal[0, 0] = entropy_at(middle)
        (drafts,), _ = live_drafts(policy, np.full((1, KMAX), np.nan), signal)
        low, high = (low, middle) if drafts > 1 else (middle, high)
    return low


def test_drafting_ends_after_the_first_bound_below_lambda() -> None:
    signal = np.full((1, KMAX), entropy_at(0.51))
    signal[0, 2] = entropy_at(0.49)
    assert live_drafts(make(ADAEDL), np.full((1, KMAX), np.nan), signal) == ([3], 3)
    assert make(ADAEDL).plan(context(entropy=signal)).verify.tolist() == [3]


def test_lambda_moves_as_in_the_paper() -> None:
    policy = make(ADAEDL)
    running, threshold = 0.0, 0.5
    random = np.random.default_rng(0)
    for step in range(30):
        accepted = int(random.integers(3, 5)) if step % 7 else 1
        policy.observe(finished([4], [accepted], step=step))
        running = 0.5 * running + 0.5 * accepted / 4
        moved = threshold + (0.01 if running <= 0.9 else -0.01)
        threshold = 0.9 * threshold + 0.1 * moved
        assert threshold_of(policy) == pytest.approx(threshold, abs=1e-6)


def test_rejections_raise_it_and_full_acceptance_lowers_it() -> None:
    worse, better = make(ADAEDL), make(ADAEDL)
    for step in range(50):
        worse.observe(finished([4], [0], step=step))
        better.observe(finished([4], [4], step=step))
    assert threshold_of(better) < 0.5 < threshold_of(worse)


def test_each_request_has_its_own_and_a_new_one_begins_afresh() -> None:
    policy = make(ADAEDL)
    for step in range(20):
        policy.observe(finished([4, 4], [0, 4], step=step))
    first = threshold_of(policy)
    policy.forget(np.array([0]))
    assert first > 0.51
    assert threshold_of(policy) == pytest.approx(0.5, abs=1e-6)


def test_rounds_without_drafts_change_nothing() -> None:
    policy = make(ADAEDL)
    policy.observe(finished([0], [0]))
    assert threshold_of(policy) == pytest.approx(0.5, abs=1e-6)


def test_a_draft_is_not_taken_back_when_lambda_has_moved_since_it_was_made() -> None:
    policy = make(ADAEDL)
    signal = np.full((1, KMAX), entropy_at(0.5 + 1e-4))
    policy.plan(context(entropy=signal))
    drafts, _ = live_drafts(policy, np.full((1, KMAX), np.nan), signal)
    policy.observe(finished([4], [0]))  # lambda rises above the bound
    assert drafts == [KMAX]
    assert policy.plan(context(step=1, entropy=signal)).verify.tolist() == [KMAX]
    assert policy.plan(context(step=2, entropy=signal)).verify.tolist() == [1]


def test_without_entropy_the_engines_k_runs() -> None:
    assert make(ADAEDL).plan(context(2, engine_k=3)).verify.tolist() == [3, 3]
