"""Cascade's tests of K per request."""

from collections.abc import Callable
from typing import Any

import numpy as np

from adaptive_spec import Level, Mode
from adaptive_spec.policy import Policy
from adaptive_spec.step import SpecPlan

from .baseline_support import KMAX, context, finished, make, simulated
from .tiny_engine import TinyEngine

CASCADE = "cascade"
ALL = KMAX
QUICK = {"trial_steps": 2, "hold_steps": 6, "baseline_period": 1000}


def engine(policy: Policy, slowdown: Callable[[int], float], **options: Any) -> TinyEngine:
    """A step with K on average lasts `slowdown(K)` x 10 ms."""
    batch = options.setdefault("batch", 1)
    return TinyEngine(
        policy,
        seconds=lambda tokens, _: 0.01 * slowdown(round((tokens - batch) / batch)),
        **options,
    )


def drive(
    policy: Policy, steps: int, slowdown: Callable[[int], float], **options: Any
) -> list[SpecPlan]:
    ran = engine(policy, slowdown, **options)
    return [ran.step() for _ in range(steps)]


def ks(plans: list[SpecPlan], row: int = 0) -> list[int]:
    return [int(plan.verify[row]) for plan in plans]


def test_it_first_times_steps_without_speculation() -> None:
    plans = drive(make(CASCADE, **QUICK), 2, lambda k: 1.0, accepts=ALL)
    assert [plan.mode for plan in plans] == [Mode.OFF_WARM] * 2


def test_it_climbs_while_utility_rises_and_holds_the_best() -> None:
    # Utility 2, 3, 2.75 of K = 1, 2, 3: one more is tried than is kept.
    time = {0: 1.0, 1: 1.0, 2: 1.0, 3: 4.0 / 2.75}
    plans = drive(make(CASCADE, **QUICK), 18, lambda k: time[k], accepts=ALL)
    # Two steps to time, one until the first draft is at hand, two each of K = 1, 2, 3 with one
    # step between to draft deeper.
    assert ks(plans) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 2, 2, 2, 2, 2, 2, 1]


def test_it_switches_off_where_one_draft_does_not_pay_until_the_next_test() -> None:
    policy = make(CASCADE, **QUICK)
    plans = drive(policy, 24, lambda k: 1.3 if k else 1.0)
    assert ks(plans)[:5] == [0, 0, 0, 1, 1]
    assert ks(plans)[5:11] == [0] * 6
    assert max(ks(plans)) == 1
    assert ks(plans)[11:].count(1) >= 2  # tested again


def test_a_sure_draft_does_not_pay_if_time_more_than_doubles() -> None:
    plans = drive(make(CASCADE, **QUICK), 12, lambda k: 1.0 + 1.2 * k, accepts=ALL)
    assert ks(plans)[5:11] == [0] * 6


def test_requests_are_tested_one_by_one_but_pay_for_the_whole_step() -> None:
    plans = drive(make(CASCADE, **QUICK), 16, lambda k: 1.0 + 0.2 * k, accepts=(ALL, 0), batch=2)
    assert ks(plans, 0) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5]
    # Off for six steps, tested for two, off again.
    assert ks(plans, 1) == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]


def test_one_k_per_batch_is_tested_as_one_request() -> None:
    fields = {"accepts": ALL, "batch": 2, "level": Level.UNIFORM}
    plans = drive(make(CASCADE, **QUICK), 16, lambda k: 1.1, **fields)
    assert all(plan.verify[0] == plan.verify[1] for plan in plans)
    assert max(ks(plans)) > 1


def test_a_new_request_is_tested_anew() -> None:
    policy = make(CASCADE, **QUICK)
    ran = engine(policy, lambda k: 1.3 if k else 1.0)
    ran.run(8)
    policy.forget(np.array([0]))
    ran.depth = 0
    assert ran.verified(4) == [0, 1, 1, 0]


def test_steps_with_prompts_are_not_timed() -> None:
    policy = make(CASCADE, **QUICK)
    for step in range(20):
        plan = policy.plan(context(step=step, prefill_tokens=500))
        assert plan.verify.tolist() == [1]
        policy.observe(finished([1], [0], step=step, prefill_tokens=500, seconds=9.0))


def test_the_baseline_is_timed_again_after_its_period() -> None:
    policy = make(CASCADE, trial_steps=2, hold_steps=500, baseline_period=50)
    plans = drive(policy, 120, lambda k: 1.0, accepts=ALL)
    rests = [step for step, plan in enumerate(plans) if plan.mode is Mode.OFF_WARM]
    assert rests == [0, 1, 51, 52, 102, 103]


def test_it_follows_what_pays_in_a_run() -> None:
    good, poor = (simulated(CASCADE, acceptance=f"model:steady-{p}", tokens=6000) for p in (80, 5))
    assert poor.mean_k < 0.5 < 1.0 < good.mean_k
