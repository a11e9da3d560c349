"""TPOT targets, cost profiles and steps without a drafter of fixed depth, where they are asked."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec import Capability, ConfigError, Level, Mode
from adaptive_spec.policies.cost_profile import CostProfile, load_profile
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.optional.cold_trial import STEPS, ColdTrial
from adaptive_spec.policies.optional.profile_prior import profile_of
from adaptive_spec.policies.optional.tpot_targets import OUT_OF_REACH
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_times import StepTimes
from tests import steps as made
from tests.policies.closed_loop import plain_steps
from tests.refused import refused

KMAX, BATCH = 4, 8
ENGINE = Capability(level=Level.FULL, max_draft_tokens=KMAX)
FIXED = Capability(level=Level.FULL, max_draft_tokens=KMAX, depth_follows=False, cold_off=True)


def drive(
    policy: GoodputPolicy, steps: int, capability: Capability = ENGINE, **world: Any
) -> list[tuple[Any, Any]]:
    """Run steps of eight requests; returns contexts and plans."""
    return list(plain_steps(policy, capability, steps, **({"hazard": 0.6} | world)))


# ----------------------------------------------------------------- TPOT targets


@pytest.mark.parametrize(("allowance", "heeded"), [(0.02, True), (0.0, False)])
def test_without_an_allowance_targets_are_ignored(allowance: float, heeded: bool) -> None:
    policy = GoodputPolicy(GoodputOptions(tpot_allowance=allowance))
    ran = drive(policy, 60, tpot_target=np.full(BATCH, 1e-6))
    assert any(OUT_OF_REACH in plan.reason for _, plan in ran) is heeded


def test_a_request_that_gets_its_tokens_in_time_is_not_late() -> None:
    """Two tokens in 20 ms; of one token alone each would be late."""
    policy = GoodputPolicy(GoodputOptions())
    ran = drive(policy, 60, hazard=0.8, tpot_target=np.full(BATCH, 0.018))
    assert all("TPOT" not in plan.reason for _, plan in ran[5:])


def test_a_late_request_is_heeded_until_it_ends() -> None:
    policy = GoodputPolicy(GoodputOptions())
    drive(policy, 60)
    policy._trial, said = None, []
    target = np.where(np.arange(BATCH) == 2, 1e-6, np.inf)
    for step in (61, 62, 63):
        context = made.context(BATCH, ENGINE, step=step, now=float(step), tpot_target=target)
        said.append(OUT_OF_REACH in policy.plan(context).reason)
        if step == 62:
            policy.forget(np.array([2]))
    assert said == [False, True, False]


# ---------------------------------------------------------------------- profile

PROFILE = CostProfile(
    tokens=[1, 8, 64, 256, 1024],
    seconds=[0.010, 0.011, 0.013, 0.022, 0.08],
    per_request=1e-5,
    per_context_token=1e-8,
    per_prefill_token=2e-5,
    draft_pass=8e-4,
    draft_pass_per_request=2e-6,
    any_draft=3e-4,
    any_draft_per_context_token=2e-9,
)


def with_profile(folder: Path, profile: CostProfile = PROFILE) -> GoodputPolicy:
    """A policy that begins with a profile."""
    file = folder / "profile.json"
    file.write_bytes(msgspec.json.encode(profile))
    assert load_profile(file) == profile
    return GoodputPolicy(GoodputOptions(profile=str(file)), seed=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": [0.1]},
        {"tokens": [2, 1]},
        {"seconds": [0.1, -0.2]},
        {"seconds": [0.0, 0.2]},
        {"seconds": [0.1, 1e300]},
        {"schema": 2},
        {"draft": 1},
        None,
    ],
    ids=str,
)
def test_a_bad_profile_is_one_line_that_names_the_file(changes: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    if changes is not None:  # else the file is missing
        path.write_text(json.dumps({"tokens": [1, 2], "seconds": [0.1, 0.2]} | changes))
    with refused(ConfigError, "cost profile", "bad.json"):
        GoodputPolicy(GoodputOptions(profile=str(path)))


def by_profile(batch: int, drafts: int, passes: float, context: int) -> float:
    total = float(np.interp(batch + drafts, PROFILE.tokens, PROFILE.seconds))
    total += PROFILE.per_request * batch + PROFILE.per_context_token * context
    if drafts:
        total += PROFILE.any_draft + PROFILE.any_draft_per_context_token * context
    return total + passes * (PROFILE.draft_pass + PROFILE.draft_pass_per_request * batch)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.sampled_from([1, 4, 8, 32, 64, 128]),
    k=st.sampled_from([0, 1, 3]),
    context=st.integers(0, 10**6),
)
def test_a_profile_is_believed_before_any_step(
    tmp_path_factory: pytest.TempPathFactory, batch: int, k: int, context: int
) -> None:
    """At token counts that are knots; between two knots the belief is linear, too."""
    policy = with_profile(tmp_path_factory.getbasetemp())
    policy.plan(made.context(1, ENGINE))
    believed = policy.times.seconds(batch, batch * (1 + k), context, float(k))
    assert believed == pytest.approx(by_profile(batch, batch * k, float(k), context), rel=1e-6)


def test_a_belief_written_as_a_profile_is_believed_alike(tmp_path: Path) -> None:
    learned = GoodputPolicy(GoodputOptions(), seed=1)
    drive(learned, 100)
    policy = with_profile(tmp_path, profile_of(learned.times))
    policy.plan(made.context(BATCH, ENGINE))
    for batch in (1, 8, 100, 700):
        for k in (0, 2, 4):
            sizes = batch, batch * (1 + k), 900 * batch, float(max(k, 1))
            assert policy.times.seconds(*sizes) == pytest.approx(learned.times.seconds(*sizes))
    learned.times.learn(
        made.outcome(made.context(2, prefill_tokens=4000), 0, seconds=0.2), cold=False
    )
    assert profile_of(learned.times).per_prefill_token > 0.0


def test_the_first_plan_has_a_prediction_and_steps_correct_it(tmp_path: Path) -> None:
    policy = with_profile(tmp_path)
    first = policy.plan(made.context(BATCH, ENGINE))
    assert first.predicted_seconds > 0.0
    fresh = GoodputPolicy(GoodputOptions(), seed=1).plan(made.context(BATCH, ENGINE))
    assert math.isnan(fresh.predicted_seconds)
    drive(policy, 300, token=5e-4)  # of the profile: 4e-5
    of = [policy.times.seconds(BATCH, BATCH * (1 + k), 800, max(k, 1.0)) for k in (0, 1)]
    assert of[1] / of[0] == pytest.approx((0.021 + 5e-4 * BATCH) / 0.021, rel=0.05)


def test_what_was_learned_goes_before_the_profile(tmp_path: Path) -> None:
    learned = GoodputPolicy(GoodputOptions(), seed=1)
    drive(learned, 100)
    policy = with_profile(tmp_path)
    policy.restore(learned.state())
    policy.plan(made.context(BATCH, ENGINE))
    expected = learned.times.seconds(BATCH, 24, 800, 2.0)
    assert policy.times.seconds(BATCH, 24, 800, 2.0) == pytest.approx(expected)


# ------------------------------------------------------- a drafter of fixed depth


def forecast_of(policy: GoodputPolicy) -> StepForecast:
    forecast = policy.last_forecast
    assert forecast is not None
    return forecast


def lone(policy: GoodputPolicy) -> ColdTrial:
    trial = policy._cold_trial
    assert trial is not None
    return trial


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, True),
        ({"depth_follows": True}, False),
        ({"off_pass": False}, True),
        ({"cold_off": False}, False),
        ({"level": Level.VERIFY}, True),
    ],
    ids=str,
)
def test_it_is_asked_where_nothing_else_tells_the_time_of_the_passes(
    changes: dict[str, Any], needed: bool
) -> None:
    assert ColdTrial.needed(msgspec.structs.replace(FIXED, **changes)) is needed


def test_a_drafter_whose_passes_cost_more_than_it_brings_stops_after_one_trial() -> None:
    """A pass of a third of a step: K = 0 without it emits 1.6 times as many tokens a second."""
    policy = GoodputPolicy(GoodputOptions(), seed=1)
    ran = drive(policy, 600, capability=FIXED, draft_pass=1.5e-2, hazard=0.55)
    modes = [plan.mode for _, plan in ran]
    first = modes.index(Mode.OFF_COLD)
    assert [plan.measures for _, plan in ran[first : first + STEPS]] == [True] * STEPS
    assert modes[first + STEPS] is Mode.OFF_COLD
    assert not ran[first + STEPS][1].measures
    assert np.mean([mode is Mode.OFF_COLD for mode in modes[first:]]) > 0.85
    trials = [plan.measures and plan.mode is Mode.OFF_COLD for _, plan in ran]
    assert sum(trials) == STEPS


def test_a_trial_that_the_drafter_passes_is_the_only_one_and_no_loss_counts() -> None:
    policy = GoodputPolicy(GoodputOptions(), seed=1)
    drive(policy, 32, capability=FIXED, draft_pass=3e-3, hazard=0.75)
    trial = lone(policy)
    trial.worth = lambda *_: 1.0  # type: ignore[method-assign]
    lost = policy.switch.lost
    ran = drive(policy, 1, capability=FIXED, draft_pass=3e-3, hazard=0.75, first=32)
    del trial.worth
    ran += drive(policy, STEPS - 1, capability=FIXED, draft_pass=3e-3, hazard=0.75, first=33)
    assert policy.switch.lost == lost
    ran += drive(policy, 400, capability=FIXED, draft_pass=3e-3, hazard=0.75, first=32 + STEPS)
    cold = [plan.mode is Mode.OFF_COLD for _, plan in ran]
    assert sum(cold) == STEPS
    assert cold[:STEPS] == [True] * STEPS
    assert trial._timed == {BATCH.bit_length()}
    assert trial.worth(forecast_of(policy), 1000, 1.0) < 0.0  # what it told is known
    nobody = np.zeros(BATCH, dtype=np.int64)
    trial.recovering, lost = True, policy.switch.lost
    drive(policy, 20, capability=FIXED, first=500, draft_possible=nobody, draft_available=nobody)
    assert trial.recovering
    assert policy.switch.lost == pytest.approx(lost, abs=1e-3)
    drive(policy, 20, capability=FIXED, first=520)
    assert not trial.recovering
    assert policy.switch.lost != pytest.approx(lost, abs=1e-3)


def test_the_time_of_prompts_is_no_loss_of_the_drafter() -> None:
    """Twenty steps of good drafts, each beside prompts that take nine times as long."""
    engine = msgspec.structs.replace(ENGINE, cold_off=True)
    policy = GoodputPolicy(GoodputOptions(), seed=1)
    drive(policy, 100, capability=engine, hazard=0.9)
    lost = policy.switch.lost
    assert lost < 0.0
    drive(
        policy, 20, capability=engine, hazard=0.9, first=100, prefill_tokens=2000, prompt_token=1e-4
    )
    assert policy.switch.lost < lost + 0.1


def test_a_trial_waits_while_requests_live_long_and_their_drafts_are_good() -> None:
    policy = GoodputPolicy(GoodputOptions(), seed=1)
    drive(policy, 30, capability=FIXED, hazard=0.55)
    forecast, trial = forecast_of(policy), lone(policy)
    worth = [trial.worth(forecast, 1000, lifetime) for lifetime in (0.0, 1.0, 2.0)]
    per_second = 0.5 / forecast.best.seconds * (1.0 - BATCH / forecast.best_tokens)
    assert worth[0] - worth[1] == pytest.approx(per_second)
    assert worth[1] - worth[2] == pytest.approx(per_second)
    assert worth[0] > 0.0
    better = forecast._replace(best_tokens=1.5 * forecast.best_tokens)
    assert trial.worth(better, 1000, 0.0) < worth[0]


def test_a_load_that_was_timed_tells_less() -> None:
    times = StepTimes(FIXED)
    policy = GoodputPolicy(GoodputOptions(), seed=1)
    drive(policy, 30, capability=FIXED, hazard=0.55)
    forecast, trial = forecast_of(policy), lone(policy)
    before = trial.worth(forecast, 1000, 0.0)
    trial.timed(BATCH)
    assert trial.worth(forecast, 1000, 0.0) < before
    assert not ColdTrial(times).due(forecast, 1000, 0.0)  # no step was timed
