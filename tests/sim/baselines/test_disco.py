"""DISCO-style stopping by a classifier."""

from __future__ import annotations

import numpy as np

from .baseline_support import (
    KMAX,
    context,
    finished,
    live_drafts,
    make,
)

DISCO = "disco"


def test_at_first_the_maximum_probability_decides() -> None:
    signal = np.array([[0.9, 0.51, 0.49, 0.9, 0.9]])
    assert live_drafts(make(DISCO), signal, np.zeros_like(signal)) == ([3], 3)
    plan = make(DISCO).plan(context(confidence=signal, entropy=np.zeros_like(signal)))
    assert plan.verify.tolist() == [3]


def test_it_learns_that_a_drafter_is_overconfident() -> None:
    policy = make(DISCO)
    random = np.random.default_rng(4)
    signal = np.array([[0.7, 0.7, 0.7, 0.7, 0.7]])
    before, _ = live_drafts(policy, signal, np.ones_like(signal))
    for step in range(600):
        shown = random.uniform(0.55, 0.95, (1, KMAX))
        seen = context(step=step, confidence=shown, entropy=2.0 * (1.0 - shown))
        plan = policy.plan(seen)
        verified = int(plan.verify[0])
        hits = random.random(verified) < shown[0, :verified] - 0.4
        accepted = int(np.logical_and.accumulate(hits).sum())
        policy.observe(finished([verified], [accepted], step=step, seen=seen))
    after, _ = live_drafts(policy, signal, 2.0 * (1.0 - signal))
    assert before == [KMAX]
    assert after == [1]


def test_without_learning_the_weights_stay() -> None:
    policy = make(DISCO, learn=False)
    for step in range(250):
        seen = context(step=step, confidence=[[0.9] * 5], entropy=[[0.1] * 5])
        policy.plan(seen)
        policy.observe(finished([5], [0], step=step, seen=seen))
    assert policy.weights.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_without_both_signals_the_engines_k_runs() -> None:
    assert make(DISCO).plan(context(1, engine_k=3)).verify.tolist() == [3]
    only_one = context(1, confidence=[[0.1] * 5], engine_k=3)
    assert make(DISCO).plan(only_one).verify.tolist() == [3]
