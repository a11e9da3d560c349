"""DSDE's rule on its stand-in signal."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.policy import Policy
from adaptive_spec.sim.baselines.papers.dsde import WINDOW, variance_ratio

from .baseline_support import KMAX, context, finished, make, simulated

DSDE = "dsde"


def k_of(policy: Policy, batch: int = 1, **changes: object) -> list[int]:
    return policy.plan(context(batch, **changes)).verify.tolist()


def reference_ratio(values: list[float]) -> float:
    """As written in the paper's code, for one request."""

    def variance(part: list[float]) -> float:
        weights = [0.9 ** (len(part) - 1 - i) for i in range(len(part))]
        mean = sum(w * v for w, v in zip(weights, part, strict=True)) / sum(weights)
        return sum(w * (v - mean) ** 2 for w, v in zip(weights, part, strict=True)) / sum(weights)

    if len(values) < 2:
        return 0.0
    long = variance(values)
    return 20.0 if long < 1e-6 else variance(values[-max(1, len(values) // 3) :]) / long


@pytest.mark.parametrize("count", [0, 1, 2, 5, 17, 29, 30])
def test_the_variance_ratio_of_many_is_that_of_each(count: int) -> None:
    random = np.random.default_rng(count)
    history = random.exponential(size=(4, WINDOW))
    history[3] = 1.0
    found = variance_ratio(history, np.full(4, count))
    for row, ratio in zip(history, found, strict=True):
        values = row[WINDOW - count :].tolist()
        assert ratio == pytest.approx(reference_ratio(values), rel=1e-6)


def test_k_doubles_while_all_is_accepted_and_stays_otherwise_at_first() -> None:
    policy = make(DSDE)
    seen = []
    for step, full in enumerate([True, False, True]):
        (k,) = k_of(policy, step=step, engine_k=1)
        seen.append(k)
        policy.observe(finished([k], [k if full else 0], step=step))
    assert seen == [1, 2, 2]
    assert k_of(policy, step=3, engine_k=1) == [4]


def warmed(confidence: float, accepted: int, *, rounds: int, **options: object) -> Policy:
    policy = make(DSDE, **options)
    for step in range(rounds):
        seen = context(step=step, confidence=[[confidence] * KMAX])
        (k,) = policy.plan(seen).verify.tolist()
        policy.observe(finished([k], [min(accepted, k)], step=step, seen=seen))
    return policy


def test_a_sure_drafter_that_is_right_keeps_kmax() -> None:
    # All divergences are alike: WVIR is 20 and SF = exp(2 * -log .999) - 1 = .002.
    assert k_of(warmed(0.999, 5, rounds=12), step=12) == [KMAX]


def test_a_sure_drafter_that_is_wrong_falls_to_kmin() -> None:
    assert k_of(warmed(0.99, 0, rounds=40), step=40) == [2]
    assert k_of(warmed(0.99, 0, rounds=40, min_drafts=1), step=40) == [1]


def test_k_follows_the_formula_between_the_bounds() -> None:
    policy = warmed(0.99, 5, rounds=12)
    factor = math.exp(2.0 * -math.log(0.99)) - 1.0
    unsteady = 20.0 * factor
    low = 2
    expected = math.ceil(low + (KMAX - low) * (1.0 - unsteady)) if unsteady <= 1 else low
    assert low < expected < KMAX
    assert k_of(policy, step=12) == [expected]


def test_temperature_softens_the_divergence() -> None:
    cold, warm = make(DSDE), make(DSDE)
    for step in range(12):
        for policy, temperature in ((cold, 0.0), (warm, 4.0)):
            seen = context(
                step=step, confidence=[[0.97] * KMAX], temperature=np.array([temperature])
            )
            (k,) = policy.plan(seen).verify.tolist()
            policy.observe(finished([k], [k], step=step, seen=seen))
    assert k_of(cold, step=12)[0] < k_of(warm, step=12)[0]


def test_the_cap_is_the_batchs_mean() -> None:
    for cap, expected in ((True, [4, 2]), (False, [5, 2])):
        policy = make(DSDE, cap=cap)
        for step in range(45):
            seen = context(2, step=step, confidence=[[0.999] * 5, [0.99] * 5])
            first, second = policy.plan(seen).verify.tolist()
            policy.observe(finished([first, second], [first, 0], step=step, seen=seen))
        assert k_of(policy, 2, step=45) == expected


def test_one_k_per_batch_is_the_mean_rounded_up() -> None:
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=5)
    policy = make(DSDE)
    policy.plan(context(2, capability=uniform, engine_k=2))
    policy.observe(finished([2, 2], [2, 0]))  # 4 and 2
    plan = policy.plan(context(2, step=1, capability=uniform, engine_k=2))
    assert plan.verify.tolist() == [3, 3]


def test_a_request_that_has_ended_leaves_nothing() -> None:
    policy = warmed(0.99, 0, rounds=40)
    policy.forget(np.array([0]))
    assert k_of(policy, step=40) == [KMAX]


def test_it_reacts_to_confidence_and_acceptance_in_a_run() -> None:
    good, poor = (simulated(DSDE, acceptance=f"model:steady-{p}") for p in (80, 10))
    assert poor.mean_k < 0.8 * good.mean_k
    assert poor.mean_k >= 1.8  # never off
