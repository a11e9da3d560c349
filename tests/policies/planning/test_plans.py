"""What `goodput` and `regression` have in common: exploration, OFF, and the times they go by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec import Mode
from adaptive_spec.policies.acceptance.model import AcceptanceModel
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policies.goodput import GoodputOptions, LearnedAcceptance
from adaptive_spec.policies.planned import Choice, Drafts, PlannedPolicy
from adaptive_spec.policies.planning.exploration import Explorer, Exploring
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.planning.trials import DEEPER, Trials
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policies.switch.modes import ModeMachine
from adaptive_spec.policy import build_policy
from adaptive_spec.step import FinishedStep, IntArray, SpecPlan, StepContext
from tests import steps
from tests.policies.closed_loop import LAPTOP, alike, run
from tests.policies.planning.test_step_forecast import FULL, context, forecast


class Chosen(Trials):
    """Trials that a test chooses."""

    def __init__(self, *trials: int | None) -> None:
        super().__init__(FULL, CostModel(FULL))
        self._trials = list(trials)

    def best_trial(self, forecast: StepForecast, observations: IntArray | None) -> int | None:
        return self._trials.pop(0) if self._trials else None


NOTHING_SEEN = np.zeros(4, dtype=np.int64)


# ----------------------------------------------------------------- trials


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_deeper_adds_at_most_one_draft_that_is_at_hand(data: st.DataObject) -> None:
    available = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=9))
    planned = np.array([data.draw(st.integers(0, most)) for most in available])
    one = Exploring(Explorer(FULL, 0), Chosen(DEEPER))
    for step in (0, 1):  # drafted for in the first, verified in the second
        now = context(step, available)
        assert one.measured(forecast(now), NOTHING_SEEN) is None
        found = one.extended(forecast(now), planned, int(planned.max()))
        more = found.verify - planned
        assert set(more.tolist()) <= {0, 1}
        assert (found.verify <= now.draft_available).all()
        if found.propensity is not None:
            assert ((found.propensity > 0.0) & (found.propensity <= 1.0)).all()
        assert found.extended == (step == 1)


def test_a_position_is_drafted_one_step_before_it_is_tried() -> None:
    one = Exploring(Explorer(FULL, 0), Chosen(DEEPER))
    planned = np.array([1, 1, 1])
    of = forecast(context(8, [2, 2, 2]))
    one.measured(of, NOTHING_SEEN)
    assert one.extended(of, planned, 1).depth == 2
    one.measured(of, NOTHING_SEEN)
    found = one.extended(of, planned, 1)
    assert found.extended
    assert found.verify.sum() > planned.sum()
    assert found.depth == 1


def test_a_k_is_drafted_in_one_step_and_tried_in_the_next() -> None:
    one = Exploring(Explorer(FULL, 0), Chosen(3))
    assert one.measured(forecast(context(4, [4, 4])), NOTHING_SEEN) is None
    assert one.k_ahead == 3
    trying = one.measured(forecast(context(5, [3, 3])), NOTHING_SEEN)
    assert trying.verify.tolist() == [3, 3]
    assert one.measured(forecast(context(6, [0, 0])), NOTHING_SEEN) is None


def test_going_off_drops_what_was_drafted_to_be_tried() -> None:
    for trial in (3, DEEPER):
        one, modes = Exploring(Explorer(FULL, 0), Chosen(trial)), ModeMachine(FULL)
        one.measured(forecast(context(4, [4, 4])), NOTHING_SEEN)
        off = one.while_off(forecast(context(5, [4, 4])), modes)
        assert off.verify.tolist() == [0, 0]
        assert off.draft_depth == 0
        of = forecast(context(6, [4, 4]))
        assert one.measured(of, NOTHING_SEEN) is None
        assert not one.extended(of, np.array([1, 1]), 1).extended


# ------------------------------------------------------------------- on and off


def finished(plan: SpecPlan, of: StepContext, seconds: float) -> FinishedStep:
    """A step in which the planned drafts were all rejected."""
    outcome = steps.outcome(
        of, plan.verify, draft_depth=plan.draft_depth, ragged=False, seconds=seconds
    )
    return FinishedStep(of, plan, outcome)


def test_steps_without_the_drafters_pass_tell_what_that_pass_costs() -> None:
    """K = 0 with the pass takes .12 s and without .1 s."""
    policy: Any = build_policy("goodput", {}, seed=1)
    for step in range(300):
        now = context(step, [0, 0])
        plan = policy.plan(now)
        mode = Mode.OFF_COLD if step % 3 == 0 else Mode.OFF_WARM
        plan = msgspec.structs.replace(plan, mode=mode, draft_depth=0, verify=np.zeros(2, int))
        policy.observe(finished(plan, now, 0.1 if mode is Mode.OFF_COLD else 0.12))
    learned = policy.state()["profile"]
    passes = learned["draft_pass"] + 2 * learned["draft_pass_per_request"]
    assert passes == pytest.approx(0.02, rel=0.15)


@pytest.mark.parametrize("profiled", [True, False])
def test_speculation_stops_only_once_step_times_are_known(profiled: bool, tmp_path: Path) -> None:
    options = {}
    if profiled:
        file = tmp_path / "profile.json"
        file.write_text('{"tokens": [1, 100], "seconds": [0.1, 0.2], "draft_pass": 0.02}')
        options["profile"] = str(file)
    policy: Any = build_policy("goodput", options, seed=1)
    rejected = AcceptanceModel(4, prior_hazard=0.02).state()
    policy.restore({"schema": 1, "acceptance": rejected})
    modes = set()
    for step in range(50):
        now = context(step, [1, 1], prefill_tokens=1)
        plan = policy.plan(now)
        modes.add(plan.mode)
        plan = msgspec.structs.replace(plan, verify=np.array([1, 1]), draft_depth=4)
        policy.observe(finished(plan, now, 0.2))
        policy.forget(now.slots)
    assert bool(modes & {Mode.OFF_WARM, Mode.OFF_COLD}) == profiled


# ------------------------------------------------------------------------- policies


@pytest.mark.slow
@pytest.mark.parametrize("name", ["goodput", "regression"])
def test_a_dead_drafter_is_no_longer_run(name: str) -> None:
    reached = run(
        build_policy(name, {}, seed=1),
        concurrency=16,
        hazards=lambda random: alike(0.05)(random)[:6],
        machine=LAPTOP,
        steps=600,
        warmup=600,
    )
    assert reached.off_fraction > 0.9


class AdmitsOne(LearnedAcceptance):
    """Verifies one draft of the first request; by confidence, all are accepted at 0.6."""

    def choose(self, forecast: StepForecast, drafts: Drafts, least_depth: int) -> Choice:
        first = np.zeros(forecast.context.batch_size, dtype=np.int64)
        first[0] = 1
        return Choice(first, 1, "admitted", survival=np.full_like(forecast.survival, 0.6))


def test_drafts_that_fill_a_captured_size_count_in_the_predicted_tokens() -> None:
    profile = CostProfile(tokens=[1, 1024], seconds=[0.010, 0.012])
    policy = PlannedPolicy(AdmitsOne(GoodputOptions()), profile, tpot_allowance=0.0, seed=0)
    captured = msgspec.structs.replace(FULL, token_buckets=(4, 8, 16))
    plan = policy.plan(context(1, [1, 1, 1, 1], capability=captured))
    assert plan.reason == "admitted"
    assert plan.verify.tolist() == [1, 1, 1, 1]
    assert plan.predicted_tokens == pytest.approx(4 + 4 * 0.6)
