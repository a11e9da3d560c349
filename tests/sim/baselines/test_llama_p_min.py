"""llama.cpp's p-min rule."""

from __future__ import annotations

import numpy as np
import pytest

from .baseline_support import (
    KMAX,
    context,
    live_drafts,
    make,
    simulated,
)

P_MIN = "llama_p_min"


@pytest.mark.parametrize(
    ("confidence", "kept", "passes"),
    [
        ([0.9, 0.9, 0.9, 0.9, 0.9], 5, 5),
        ([0.9, 0.5, 0.49, 0.9, 0.9], 2, 3),
        ([0.49, 0.9, 0.9, 0.9, 0.9], 0, 1),
    ],
)
def test_the_unlikely_draft_is_dropped_and_its_pass_paid(
    confidence: list[float], kept: int, passes: int
) -> None:
    signal = np.array([confidence])
    policy = make(P_MIN, p_min=0.5, max_drafts=5)
    assert live_drafts(policy, signal, np.full_like(signal, np.nan)) == ([kept], passes)
    assert policy.plan(context(confidence=signal)).verify.tolist() == [kept]


def test_by_default_it_makes_three_drafts_and_never_stops() -> None:
    plan = make(P_MIN).plan(context(confidence=np.full((1, KMAX), 0.01)))
    assert (plan.verify.tolist(), plan.draft_depth) == ([3], 3)


def test_an_unknown_confidence_is_no_reason_to_stop() -> None:
    policy = make(P_MIN, p_min=0.5, max_drafts=5)
    signal = np.array([[0.9, np.nan, 0.9, 0.1, 0.9]])
    assert policy.plan(context(confidence=signal)).verify.tolist() == [3]


def test_without_confidence_the_engines_k_runs() -> None:
    assert make(P_MIN, p_min=0.5).plan(context(2, engine_k=4)).verify.tolist() == [4, 4]


def test_a_higher_p_min_verifies_fewer_and_better_drafts() -> None:
    low, high = (simulated(P_MIN, p_min=p, max_drafts=5) for p in (0.2, 0.8))
    assert high.mean_k < 0.7 * low.mean_k
    assert high.accepted_per_step / high.mean_k > low.accepted_per_step / low.mean_k
