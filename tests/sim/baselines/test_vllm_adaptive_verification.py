"""vLLM's adaptive verification: estimator, cost tables, budget from the round before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.policies.step_time.profile import CostProfile
from adaptive_spec.policy import Policy
from adaptive_spec.sim.baselines.engines.vllm_adaptive_verification import (
    REFIT_STEPS,
    CostCurve,
    VllmAcceptanceEstimator,
    profiled_curves,
)
from adaptive_spec.sim.baselines.parts.drafts import log_odds, sigmoid
from adaptive_spec.sim.baselines.parts.verification_budget import best_budget

from .baseline_support import (
    KMAX,
    context,
    dear_tokens,
    finished,
    make,
    simulated,
)

VLLM = "vllm_adaptive_verification"


@pytest.fixture
def dear(tmp_path: Path) -> str:
    return dear_tokens(tmp_path)


# ------------------------------------------------------------------------ estimator


def coefficients(estimator: VllmAcceptanceEstimator) -> list[list[float]]:
    return [estimator.slope.tolist(), estimator.intercept.tolist()]


def fitted(slope: float, intercept: float, *, rounds: int = 12) -> tuple[float, float]:
    """What is learned of one position whose acceptance is logistic with these coefficients."""
    estimator = VllmAcceptanceEstimator(1)
    random = np.random.default_rng(6)
    for _ in range(rounds * REFIT_STEPS):
        x = random.normal(0.0, 2.0, (16, 1))
        hits = random.random((16, 1)) < sigmoid(slope * x + intercept)
        estimator.learn(x, estimator.predict(x), np.ones(16, np.int64), hits[:, 0].astype(np.int64))
    return float(estimator.slope[0]), float(estimator.intercept[0])


def test_the_estimator_finds_the_logistic_that_made_the_outcomes() -> None:
    assert fitted(1.2, -0.8) == pytest.approx((1.2, -0.8), abs=0.15)


def test_a_slope_is_never_negative() -> None:
    assert fitted(-1.0, 0.0)[0] >= 0.0


def test_nothing_changes_before_a_hundred_steps() -> None:
    estimator = VllmAcceptanceEstimator(KMAX)
    first = coefficients(estimator)
    x = np.array([[2.0] * KMAX, [-2.0] * KMAX, [3.0] * KMAX])
    accepted = np.array([KMAX, 0, KMAX])
    for _ in range(REFIT_STEPS - 1):
        estimator.learn(x, estimator.predict(x), np.full(3, KMAX), accepted)
    assert coefficients(estimator) == first
    estimator.learn(x, estimator.predict(x), np.full(3, KMAX), accepted)
    assert coefficients(estimator) != first


def test_drafts_without_a_signal_are_not_judged() -> None:
    estimator = VllmAcceptanceEstimator(2)
    first = coefficients(estimator)
    x = np.full((3, 2), np.nan)
    for _ in range(REFIT_STEPS):
        estimator.learn(x, estimator.predict(x), np.full(3, 2), np.full(3, 2))
    assert coefficients(estimator) == first


# ---------------------------------------------------------------------- cost tables


def test_costs_are_a_staircase_inside_the_graphs_and_linear_past_them() -> None:
    curve = CostCurve([1, 4, 8, 16, 32], [1.0, 3.0, 2.0, 10.0, 12.0], graph_limit=8)
    assert curve.at(np.array([1, 2, 4, 5, 8])).tolist() == [1.0, 3.0, 3.0, 3.0, 3.0]
    assert curve.at(np.array([9, 16, 24, 32, 40])).tolist() == [10.0, 10.0, 11.0, 12.0, 13.0]


def test_a_profile_is_measured_with_8192_tokens_of_context_per_request() -> None:
    capability = Capability(level=Level.VERIFY, max_draft_tokens=3, token_buckets=(4, 8, 16))
    base = {"tokens": [1, 101], "seconds": [0.01, 0.11], "draft_pass": 0.001}
    without = profiled_curves(CostProfile(**base), capability)
    with_context = profiled_curves(CostProfile(**base, per_context_token=1e-6), capability)
    tokens = np.array([4, 8, 16, 20, 24])
    extra = with_context[1].at(tokens) - without[1].at(tokens)
    # Four tokens a request; past 16 the next measured sizes are 24 (6 requests) and 32.
    assert extra / (8192 * 1e-6) == pytest.approx([1, 2, 4, 6, 6])
    assert without[0].at(np.array([1, 4])) == pytest.approx([0.003, 0.003])


# ------------------------------------------------------------------------- decision


def test_the_budget_is_the_best_of_all_numbers_even_past_a_fall() -> None:
    survival = np.array([[0.9, 0.8, 0.7]])
    falls_first = np.array([1.0, 2.5, 2.5, 2.5])
    # 1, 1.9/2.5, 2.7/2.5, 3.4/2.5: the second is worse than none, the last the best.
    assert best_budget(survival, np.array([3]), falls_first) == 3
    assert best_budget(survival, np.array([2]), falls_first) == 2
    assert best_budget(survival, np.array([3]), np.arange(1.0, 5.0)) == 0


def plan_of(policy: Policy, step: int, confidence: list[list[float]]) -> list[int]:
    seen = context(len(confidence), step=step, confidence=confidence)
    return policy.plan(seen).verify.tolist()


def test_the_number_comes_from_the_round_before_the_choice_from_this_one(dear: str) -> None:
    # T(m) is in proportion to 2 + m + 9: a draft pays if its survival is above tokens per second.
    policy = make(VLLM, profile=dear)
    sure, unsure = [0.999] * 5, [0.001] * 5
    # A new request is expected to accept everything, so all is verified.
    assert sum(plan_of(policy, 0, [unsure, unsure])) == 10
    # The last round was hopeless: nothing is verified, however sure this one is.
    assert plan_of(policy, 1, [sure, sure]) == [0, 0]
    # The last round was sure, so many are verified; which ones follows from this round.
    first, second = plan_of(policy, 2, [sure, unsure])
    assert first == 5
    assert first + second == sum(plan_of(policy, 3, [sure, sure])) or second > 0


def test_another_request_in_a_slot_starts_at_certainty(dear: str) -> None:
    policy = make(VLLM, profile=dear)
    plan_of(policy, 0, [[0.001] * 5])
    assert plan_of(policy, 1, [[0.001] * 5]) == [0]
    policy.forget(np.array([0]))
    assert plan_of(policy, 2, [[0.001] * 5]) == [5]


def test_the_full_draft_is_always_made(dear: str) -> None:
    policy = make(VLLM, profile=dear)
    plan_of(policy, 0, [[0.001] * 5])
    plan = policy.plan(context(step=1, confidence=[[0.001] * 5]))
    assert (plan.verify.tolist(), plan.draft_depth) == ([0], KMAX)


def test_a_larger_batch_verifies_less_of_each(dear: str) -> None:
    per_request = []
    for batch in (1, 8, 64):
        policy = make(VLLM, profile=dear)
        for step in range(2):
            shown = np.full((batch, KMAX), 0.6)
            verify = policy.plan(context(batch, step=step, confidence=shown)).verify
        per_request.append(float(verify.mean()))
    assert per_request[0] > per_request[1] > per_request[2]


def test_outcomes_teach_it_that_a_drafter_is_overconfident(dear: str) -> None:
    policy = make(VLLM, profile=dear)
    shown = [[0.9] * 5, [0.9] * 5]
    before = [sum(plan_of(policy, step, shown)) for step in range(2)][1]
    for step in range(2, 302):
        seen = context(2, step=step, confidence=shown)
        plan = policy.plan(seen)
        verified = plan.verify.tolist()
        policy.observe(finished(verified, [0, 0], step=step, seen=seen, plan=plan))
    assert before > 0
    assert sum(plan_of(policy, 302, shown)) < before


def test_without_confidence_the_engines_k_runs() -> None:
    assert make(VLLM).plan(context(2, engine_k=3)).verify.tolist() == [3, 3]


def test_log_odds_and_back() -> None:
    chance = np.array([0.0, 0.1, 0.5, 0.999, 1.0])
    assert sigmoid(log_odds(chance)) == pytest.approx(chance)
    assert log_odds(np.array([0.0, 1.0])).tolist() == [-40.0, 40.0]
    assert np.isnan(log_odds(np.array([np.nan]))[0])


def test_in_a_run_it_accepts_more_per_verified_draft_than_a_fixed_k() -> None:
    adaptive = simulated(VLLM, level=Level.VERIFY, concurrency=128, tokens=60_000)
    fixed = simulated("static", level=Level.VERIFY, concurrency=128, tokens=60_000, k=KMAX)
    assert adaptive.mean_k < 0.8 * fixed.mean_k
    assert adaptive.accepted_per_step > 0.75 * fixed.accepted_per_step
    assert adaptive.throughput_tok_s > 1.05 * fixed.throughput_tok_s
