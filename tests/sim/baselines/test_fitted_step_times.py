"""Step times are fitted to the steps that ran, and again once they have changed."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.sim.baselines.parts.fitted_step_times import FittedStepTimes, RaggedPenalty
from tests.measured_steps import FULL, step


def truth(batch: int, k: float, depth: int) -> float:
    """A laptop: flat at first, then linear in tokens."""
    tokens = batch * (1 + k)
    return 0.055 + 0.0035 * max(tokens - 4, 0) + 0.002 * max(depth, 1)


def train(model: FittedStepTimes, batch: int, ks: list[int], steps: int, seed: int = 0) -> None:
    """Learn so many steps with 5 % of noise, one in fifty six times as long."""
    random = np.random.default_rng(seed)
    for n in range(steps):
        k = ks[n % len(ks)]
        noise = float(np.exp(0.05 * random.standard_normal()))
        noise *= 6.0 if random.random() < 0.02 else 1.0
        model.learn_step_time(step(batch, k, k, truth(batch, k, k) * noise))


def predicted(model: FittedStepTimes, batch: int, k: int) -> float:
    """Seconds of a step in which each request drafts and verifies K."""
    verify = model.verify_seconds(batch, 100 * batch, 0)
    return float(verify[k * batch] + model.draft_seconds(batch)[k])


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_every_k_is_predicted_through_noise_and_stalls(batch: int) -> None:
    model = FittedStepTimes(FULL)
    train(model, batch, [0, 1, 2, 3, 4, 5, 6], 300)
    for k in range(7):
        assert predicted(model, batch, k) == pytest.approx(truth(batch, k, k), rel=0.07)


def test_other_loads_follow_a_change_that_one_has_seen() -> None:
    model = FittedStepTimes(FULL)
    train(model, 4, [0, 1, 3, 6], 100)
    train(model, 16, [0, 1, 3, 6], 100, seed=1)
    for _ in range(40):
        model.learn_step_time(step(16, 3, 3, 10.0 * truth(16, 3, 3)))
    assert model.changes == 1
    assert predicted(model, 4, 1) == pytest.approx(10.0 * truth(4, 1, 1), rel=0.3)


def test_times_beyond_all_reason_start_over_with_the_next_step() -> None:
    model = FittedStepTimes(FULL)
    for _ in range(20):
        model.learn_step_time(step(4, 3, 3, 1e-4))
    for _ in range(20):
        model.learn_step_time(step(4, 3, 3, 10.0))
    assert model.changes >= 1
    assert predicted(model, 4, 3) == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize("seconds", [float("nan"), 0.0, 1e-300, -1.0, 1e9, float("inf")])
def test_steps_without_a_clean_time_are_left_out(seconds: float) -> None:
    model = FittedStepTimes(FULL)
    model.learn_step_time(step(2, 1, 1, seconds))
    assert not model.ready


def test_the_first_step_without_prompts_sets_the_scale_again() -> None:
    model = FittedStepTimes(FULL)
    model.learn_step_time(step(4, 3, 3, 2.0, prefill=4000))
    model.learn_step_time(step(4, 3, 3, 0.02))
    assert predicted(model, 4, 3) == pytest.approx(0.02, rel=0.05)


def test_a_profile_predicts_before_any_step() -> None:
    profile = CostProfile(
        tokens=[1, 64, 128],
        seconds=[0.01, 0.02, 0.04],
        draft_pass=0.001,
        any_draft_per_context_token=1e-6,
    )
    model = FittedStepTimes(FULL, profile)
    assert model.ready
    verify = model.verify_seconds(64, 0, 0)
    assert (verify[0], verify[64]) == pytest.approx((0.02, 0.04), rel=0.02)
    longer = model.verify_seconds(64, 10_000, 0) - verify
    assert (longer[0], longer[1]) == pytest.approx((0.0, 0.01))
    assert model.draft_seconds(64)[3] == pytest.approx(0.003)


def test_drafts_that_run_at_one_captured_size_take_as_long() -> None:
    model = FittedStepTimes(msgspec.structs.replace(FULL, token_buckets=(1, 8, 16)))
    train(model, 4, [0, 1, 3, 6], 60)
    verify = model.verify_seconds(4, 400, 0)
    assert verify[5] == verify[12] != verify[13]
    assert verify[13] != verify[14]  # 17 and 18 tokens are beyond the sizes


def test_where_the_drafter_runs_beside_k_0_it_makes_one_pass() -> None:
    profile = CostProfile(tokens=[1, 2], seconds=[0.01, 0.01], draft_pass=0.001)
    for off_pass, seconds in ((True, 0.001), (False, 0.0)):
        model = FittedStepTimes(msgspec.structs.replace(FULL, off_pass=off_pass), profile)
        assert model.draft_seconds(4)[0] == pytest.approx(seconds)


@pytest.mark.parametrize("penalty", [0.0, 0.2])
def test_what_k_that_differ_cost_is_learned_beside_the_step_times(penalty: float) -> None:
    model = FittedStepTimes(msgspec.structs.replace(FULL, ragged_penalty=0.1))
    for n in range(400):
        seconds = 0.02 * (1.0 + penalty * (n % 2)) + 3 * 0.001
        outcome = msgspec.structs.replace(step(8, 3, 3, seconds), ragged=bool(n % 2))
        model.learn_step_time(outcome)
    assert predicted(model, 8, 3) == pytest.approx(0.023, rel=0.02)


def test_a_penalty_is_learned_where_both_kinds_of_steps_ran() -> None:
    learned = RaggedPenalty(0.1)
    for n in range(400):
        learned.add_step(1.0 + 0.04 * (n % 2), 1.0, ragged=bool(n % 2), load=(4, 3))
        learned.add_step(1.5, 1.0, ragged=True, load=(64, 3))
    assert learned.value == pytest.approx(0.045, abs=0.006)
