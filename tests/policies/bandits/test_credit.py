"""Which step is credited to which K, and with what probability it ran."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from adaptive_spec import Level
from adaptive_spec.policy import Policy
from adaptive_spec.step import Capability, SpecPlan, StepContext, StepOutcome
from tests.policies.bandits.bandits import bandit

KMAX, BATCH = 4, 8


def context(step: int, depth: int, level: Level = Level.FULL, **changes) -> StepContext:
    possible = np.full(BATCH, KMAX, dtype=np.int64)
    values = dict(
        step=step,
        capability=Capability(level=level, max_draft_tokens=KMAX),
        request_ids=[f"r{i}" for i in range(BATCH)],
        slots=np.arange(BATCH, dtype=np.int64),
        context_tokens=np.full(BATCH, 100, dtype=np.int64),
        draft_available=np.minimum(possible, depth),
        draft_possible=possible,
        engine_k=KMAX,
        tpot_target=np.full(BATCH, np.inf),
        task=np.full(BATCH, -1, dtype=np.int64),
        temperature=np.zeros(BATCH),
        now=float(step),
    )
    return StepContext(**(values | changes))


def outcome(plan: SpecPlan, verified: np.ndarray | None = None, seconds: float = 0.01):
    ran = plan.verify if verified is None else verified
    return StepOutcome(
        step=plan.step,
        slots=np.arange(BATCH, dtype=np.int64),
        verified=ran,
        accepted=ran // 2,
        emitted=ran // 2 + 1,
        batch_size=BATCH,
        batch_tokens=BATCH + int(ran.sum()),
        context_tokens=100 * BATCH,
        prefill_tokens=0,
        draft_depth=plan.draft_depth,
        ragged=False,
        seconds=seconds,
    )


def drive(policy: Policy, steps: int, *, delay: int = 0, level: Level = Level.FULL) -> list:
    plans, waiting, depth = [], [], 0
    for step in range(steps):
        plan = policy.plan(context(step, KMAX if level is Level.VERIFY else depth, level))
        depth = plan.draft_depth
        plans.append(plan)
        waiting.append(outcome(plan))
        if len(waiting) > delay:
            policy.observe(waiting.pop(0))
    return plans


def rewarded(policy: Policy) -> np.ndarray:
    """[A] rewards counted for each K, over all loads."""
    return np.array(policy.state()["learned"]["count"]).sum(axis=0)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_only_steps_that_draft_to_the_k_they_verify_are_credited(delay: int) -> None:
    policy = bandit("ucb", cascade=False, hold_steps=3)
    plans = drive(policy, 40, delay=delay)
    done = plans[: len(plans) - delay]
    # The first step has no drafts at hand: what ran is not its arm.
    clean = [p.draft_depth for p in done if p.verify.max() == p.draft_depth]
    assert rewarded(policy).tolist() == np.bincount(clean, minlength=KMAX + 1).tolist()
    assert len(clean) < len(done)


def test_every_step_is_credited_where_the_drafter_always_drafts_kmax() -> None:
    policy = bandit("ucb", cascade=False)
    plans = drive(policy, 30, level=Level.VERIFY)
    ran = [int(plan.verify.max()) for plan in plans]
    assert rewarded(policy).tolist() == np.bincount(ran, minlength=KMAX + 1).tolist()


def test_a_step_that_ran_another_k_is_credited_to_nobody() -> None:
    policy = bandit("ucb", cascade=False)
    for step in range(12):
        plan = policy.plan(context(step, KMAX, Level.VERIFY))
        policy.observe(outcome(plan, (plan.verify + 1) % (KMAX + 1)))
    assert rewarded(policy).sum() == 0


def test_the_cascade_form_learns_from_any_k() -> None:
    policy = bandit("ucb")
    plan = policy.plan(context(0, KMAX, Level.VERIFY))
    policy.observe(outcome(plan, np.full(BATCH, 3, dtype=np.int64)))
    learned = policy.state()["learned"]
    assert learned["seen"] == [BATCH, BATCH, 0, 0]  # one of three was accepted, two were seen
    assert learned["succeeded"] == [BATCH, 0, 0, 0]


def test_a_step_spent_on_prompts_measures_no_k() -> None:
    policy = bandit("ucb", cascade=False)
    for step in range(30):
        plan = policy.plan(context(step, KMAX, Level.VERIFY))
        policy.observe(outcome(plan))
    before = rewarded(policy).sum()
    prompts = context(30, KMAX, Level.VERIFY, prefill_tokens=8000)
    plan = policy.plan(prompts)
    slow = msgspec.structs.replace(outcome(plan, seconds=0.5), prefill_tokens=8000)
    for _ in range(20):  # the price of a prompt token has to be learned first
        policy._costs.learn(slow)
    policy.observe(slow)
    assert rewarded(policy).sum() == before


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("cascade", [True, False])
def test_recorded_propensities_are_the_frequencies_of_k(level: Level, cascade: bool) -> None:
    """E[1 / p] over what ran is the number of K values there are, if p is the true probability."""
    policy = bandit("exp3", 5, cascade=cascade, hold_steps=1, gamma=0.3)
    plans = drive(policy, 1500, level=level)
    known = [plan for plan in plans if plan.propensity is not None]
    assert len(known) >= len(plans) - 1
    weights = np.array([1.0 / plan.propensity.min() for plan in known])
    error = weights.std() / np.sqrt(len(weights))
    assert abs(weights.mean() - (KMAX + 1)) < 4.0 * error


def test_thompson_knows_its_probabilities_only_when_asked() -> None:
    assert all(plan.propensity is None for plan in drive(bandit("thompson"), 50))
    asked = drive(bandit("thompson", uniform_fraction=0.5, hold_steps=1), 400)
    known = [plan.propensity.min() for plan in asked if plan.propensity is not None]
    assert len(known) > 250
    assert min(known) >= 0.5 / (KMAX + 1) - 1e-9


@pytest.mark.parametrize("name", ["linucb", "linear_thompson"])
def test_the_confidence_of_a_draft_does_not_decide_about_it(name: str) -> None:
    def plans(surprise: float) -> list[list[int]]:
        policy = bandit(name, 3)
        made = []
        for step in range(60):
            confidence = np.full((BATCH, KMAX), 0.7)
            if step == 59:
                confidence[:] = surprise
            known = context(
                step, KMAX, Level.VERIFY, confidence=confidence, entropy=1.0 - confidence
            )
            plan = policy.plan(known)
            policy.observe(outcome(plan))
            made.append(plan.verify.tolist())
        return made

    assert plans(0.01) == plans(0.99)
