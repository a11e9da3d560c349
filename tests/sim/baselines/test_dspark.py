"""DSpark's scheduler: calibrated confidences, a budget two rounds old."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adaptive_spec import Level
from adaptive_spec.policy import Policy
from adaptive_spec.sim.baselines.papers.dspark import TemperatureScaling
from adaptive_spec.sim.baselines.parts.drafts import log_odds, sigmoid

from .baseline_support import (
    KMAX,
    context,
    dear_tokens,
    make,
    simulated,
    staircase,
    stays_causal,
)

DSPARK = "dspark"


@pytest.fixture
def dear(tmp_path: Path) -> str:
    return dear_tokens(tmp_path)


def plan_of(policy: Policy, step: int, confidence: list[list[float]]) -> list[int]:
    seen = context(len(confidence), step=step, confidence=confidence)
    return policy.plan(seen).verify.tolist()


def test_the_number_of_drafts_follows_the_confidence_of_two_rounds_before(dear: str) -> None:
    policy = make(DSPARK, profile=dear, calibrate=False)
    sure, unsure = [[0.999] * 5], [[0.02] * 5]
    shown = [unsure, sure, sure, unsure, unsure, unsure]
    # Two rounds of a new request count as certain; then each round shows two rounds later.
    assert [plan_of(policy, step, each)[0] for step, each in enumerate(shown)] == [5, 5, 0, 5, 5, 0]


def test_which_drafts_are_verified_follows_this_rounds_confidence(dear: str) -> None:
    policy = make(DSPARK, profile=dear, calibrate=False)
    sure, unsure = [0.999] * 5, [0.02] * 5
    for step in range(3):
        plan_of(policy, step, [sure, unsure])
    first = plan_of(policy, 3, [sure, unsure])
    swapped = plan_of(policy, 4, [unsure, sure])
    assert first == [5, 0]
    assert swapped == [0, 5]


def test_the_full_block_is_always_drafted(dear: str) -> None:
    policy = make(DSPARK, profile=dear)
    for step in range(4):
        plan = policy.plan(context(step=step, confidence=[[0.02] * 5]))
    assert (plan.verify.tolist(), plan.draft_depth) == ([0], KMAX)


def test_without_confidence_the_engines_k_runs() -> None:
    assert make(DSPARK).plan(context(2, engine_k=3)).verify.tolist() == [3, 3]


def test_a_budget_from_this_rounds_own_confidence_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make(DSPARK, profile=staircase(tmp_path))
    monkeypatch.setattr(type(policy), "_shift", lambda self, slots, live: live)
    with pytest.raises(AssertionError):
        stays_causal(policy, Level.VERIFY)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_scaling_finds_how_overconfident_a_drafter_is(temperature: float) -> None:
    scaling = TemperatureScaling(3)
    random = np.random.default_rng(7)
    for _ in range(1000):
        odds = random.normal(1.5, 1.5, (16, 3))
        hits = random.random((16, 3)) < sigmoid(odds / temperature)
        accepted = np.logical_and.accumulate(hits, axis=1).sum(axis=1)
        scaling.learn(odds, np.full(16, 3), accepted)
    assert scaling.temperature == pytest.approx([temperature] * 3, rel=0.25)


def test_a_position_hardly_seen_leans_on_the_others() -> None:
    scaling = TemperatureScaling(2)
    random = np.random.default_rng(7)
    for step in range(500):
        odds = random.normal(1.0, 1.5, (16, 2))
        hits = random.random((16, 2)) < sigmoid(odds / 2.0)
        verified = np.full(16, 2 if step % 100 == 0 else 1)
        accepted = np.minimum(np.logical_and.accumulate(hits, axis=1).sum(axis=1), verified)
        scaling.learn(odds, verified, accepted)
    assert scaling.temperature[1] == pytest.approx(2.0, rel=0.6)


def test_only_judged_drafts_with_a_signal_count() -> None:
    scaling = TemperatureScaling(2)
    for _ in range(300):
        odds = np.array([[np.nan, 3.0], [3.0, 3.0]])
        # Nothing is verified of the second request; the first has no signal where it is judged.
        scaling.learn(odds, np.array([1, 0]), np.array([0, 0]))
    assert scaling.temperature.tolist() == [1.0, 1.0]


def test_a_calibrated_confidence_is_left_alone() -> None:
    assert log_odds(np.array([0.3]))[0] == pytest.approx(np.log(0.3 / 0.7))
    assert TemperatureScaling(1).calibrated(log_odds(np.array([[0.3]])))[0, 0] == pytest.approx(0.3)


def test_in_a_run_it_verifies_less_and_gets_more_done_than_a_fixed_k() -> None:
    adaptive = simulated(DSPARK, level=Level.VERIFY, concurrency=128, tokens=60_000)
    fixed = simulated("static", level=Level.VERIFY, concurrency=128, tokens=60_000, k=KMAX)
    assert adaptive.mean_k < 0.9 * fixed.mean_k
    assert adaptive.throughput_tok_s > 1.05 * fixed.throughput_tok_s
