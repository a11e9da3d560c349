"""The confidence threshold of transformers and its refit on the ROC curve."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policy import Policy
from adaptive_spec.sim.baselines.stopping.hf_confidence import cheapest_threshold

from .baseline_support import (
    KMAX,
    context,
    finished,
    make,
)

CONFIDENCE = "hf_confidence"


def step(policy: Policy, number: int, shown: list[float], accepted: int) -> None:
    seen = context(step=number, confidence=[shown])
    verified = int(policy.plan(seen).verify[0])
    policy.observe(finished([verified], [min(accepted, verified)], step=number, seen=seen))


def test_drafting_ends_after_the_first_draft_below_the_threshold() -> None:
    plan = make(CONFIDENCE).plan(context(confidence=[[0.9, 0.4, 0.39, 0.9, 0.9]]))
    assert (plan.verify.tolist(), plan.draft_depth) == ([3], KMAX)


def test_six_judged_drafts_of_both_kinds_move_the_threshold() -> None:
    policy = make(CONFIDENCE)
    step(policy, 0, [0.9, 0.8, 0.7, 0.6, 0.5], 5)
    assert policy.threshold == 0.4  # five, all accepted
    step(policy, 1, [0.45, 0.9, 0.9, 0.9, 0.9], 0)
    # Accepted at .5 and above, rejected at .45: .5 tells them apart without an error.
    assert policy.threshold == 0.5


def test_what_lies_behind_the_first_rejection_is_not_judged() -> None:
    policy = make(CONFIDENCE)
    step(policy, 0, [0.9, 0.8, 0.7, 0.6, 0.5], 4)
    step(policy, 1, [0.99, 0.98, 0.97, 0.96, 0.95], 0)  # only .99 is judged
    assert policy.threshold == 0.6


def test_missing_a_good_draft_weighs_three_times_a_bad_one_let_through() -> None:
    shown = np.array([0.9, 0.8, 0.7, 0.6])
    # Of two accepted and two rejected: giving up .6 saves one of two false positives.
    assert cheapest_threshold(shown, np.array([True, False, False, True])) == 0.6
    assert cheapest_threshold(shown, np.array([True, True, False, False])) == 0.8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=2, max_size=40))
def test_the_threshold_is_the_cheapest_of_all(rows: list[tuple[int, bool]]) -> None:
    shown = np.array([value / 10 for value, _ in rows])
    taken = np.array([flag for _, flag in rows])
    if taken.all() or not taken.any():
        return

    def cost(threshold: float) -> float:
        passed = shown >= threshold
        return float(np.mean(passed[~taken]) + 3.0 * np.mean(~passed[taken]))

    found = cheapest_threshold(shown, taken)
    assert cost(found) == pytest.approx(min(cost(value) for value in shown.tolist()))


def test_the_threshold_is_scikit_learns_roc_choice() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    random = np.random.default_rng(2)
    for _ in range(50):
        shown = np.round(random.random(60), 2)
        taken = random.random(60) < shown
        false, true, thresholds = metrics.roc_curve(taken, shown)
        expected = thresholds[np.argmin(false + 3 * (1 - true))]
        assert cheapest_threshold(shown, taken) == pytest.approx(float(expected))


def test_the_history_is_bounded() -> None:
    policy = make(CONFIDENCE, window=6)
    for number in range(10):
        step(policy, number, [0.9] * KMAX, 0)
    for number in range(10, 14):
        step(policy, number, [0.6, 0.6, 0.6, 0.3, 0.3], 3)
    assert policy.threshold == 0.6  # no trace of the rejected .9


def test_without_refit_the_threshold_stays() -> None:
    policy = make(CONFIDENCE, refit=False)
    for number in range(20):
        step(policy, number, [0.9, 0.8, 0.7, 0.6, 0.5], 2)
    assert policy.threshold == 0.4


def test_the_refitted_threshold_decides_from_the_next_step_on() -> None:
    policy = make(CONFIDENCE)
    step(policy, 0, [0.9, 0.8, 0.7, 0.6, 0.5], 4)
    step(policy, 1, [0.55, 0.9, 0.9, 0.9, 0.9], 0)  # the threshold rises to .6
    shown = [0.5, 0.9, 0.9, 0.9, 0.9]
    assert policy.plan(context(step=2, confidence=[shown])).verify.tolist() == [1]


def test_without_confidence_the_engines_k_runs() -> None:
    assert make(CONFIDENCE).plan(context(2, engine_k=3)).verify.tolist() == [3, 3]
