"""vLLM's adaptive verification around the rule, which tests/vllm holds against vLLM's own."""

from pathlib import Path

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policy import Policy
from adaptive_spec.sim.baselines.engines.vllm_adaptive_verification import profiled_curves
from adaptive_spec.sim.baselines.parts.drafts import most_likely, survival_of

from .baseline_support import KMAX, context, dear_tokens, finished, make, simulated

VLLM = "vllm_adaptive_verification"


@pytest.fixture
def dear(tmp_path: Path) -> str:
    return dear_tokens(tmp_path)


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


def plan_of(policy: Policy, step: int, confidence: list[list[float]]) -> list[int]:
    seen = context(len(confidence), step=step, confidence=confidence)
    return policy.plan(seen).verify.tolist()


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


def test_in_a_run_it_accepts_more_per_verified_draft_than_a_fixed_k() -> None:
    adaptive = simulated(VLLM, level=Level.VERIFY, concurrency=128, tokens=60_000)
    fixed = simulated("static", level=Level.VERIFY, concurrency=128, tokens=60_000, k=KMAX)
    assert adaptive.mean_k < 0.8 * fixed.mean_k
    assert adaptive.accepted_per_step > 0.75 * fixed.accepted_per_step
    assert adaptive.throughput_tok_s > 1.05 * fixed.throughput_tok_s


def test_equal_survivals_go_to_shallow_positions_then_early_requests() -> None:
    survival = np.ones((3, 4))
    full = np.full(3, 4)
    ranked = [most_likely(survival, full, budget).tolist() for budget in (0, 1, 2, 3, 4, 8, 99)]
    assert ranked == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1], [3, 3, 2], [4, 4, 4]]


def test_a_drafts_place_does_not_depend_on_deeper_ones_of_its_request() -> None:
    random = np.random.default_rng(8)
    for _ in range(300):
        acceptance = np.round(random.random((3, 4)), 1)
        other = acceptance.copy()
        row, changed = int(random.integers(3)), int(random.integers(1, 4))
        other[row, changed:] = np.round(random.random(4 - changed), 1)
        budget, available = int(random.integers(13)), random.integers(0, 5, 3)
        one, two = (
            most_likely(survival_of(world), available, min(budget, int(available.sum())))[row]
            for world in (acceptance, other)
        )
        assert min(one, changed) == min(two, changed)
