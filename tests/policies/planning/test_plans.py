"""What `goodput` and `regression` have in common: exploration, OFF, and the times they go by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec import Level, Mode
from adaptive_spec.policies.acceptance.model import AcceptanceModel
from adaptive_spec.policies.goodput import GoodputOptions, LearnedAcceptance
from adaptive_spec.policies.planned import Choice, Drafts, PlannedPolicy
from adaptive_spec.policies.planning.cost_probes import CostProbes
from adaptive_spec.policies.planning.exploration import Explorer
from adaptive_spec.policies.planning.exploration_plans import Exploring
from adaptive_spec.policies.planning.planner import Admission
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policies.step_time.profile import CostProfile
from adaptive_spec.policies.switch.modes import ModeMachine
from adaptive_spec.policy import build_policy
from adaptive_spec.step import FinishedStep, SpecPlan, StepContext, StepOutcome
from tests.policies.closed_loop import LAPTOP, alike, run
from tests.policies.planning.test_step_forecast import FULL, context, forecast
from tests.policies.step_time.test_model import step as step_of


def exploring() -> Exploring:
    return Exploring(Explorer(FULL, 0), CostProbes(CostModel(FULL)))


KNOWN = np.full(4, 10_000)
UNKNOWN = np.zeros(4, dtype=np.int64)


# ----------------------------------------------------------------- exploration


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_exploring_adds_at_most_one_draft_and_never_one_that_is_not_at_hand(
    data: st.DataObject,
) -> None:
    available = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=9))
    planned = np.array([data.draw(st.integers(0, most)) for most in available])
    one = exploring()
    for step in (0, 1):  # due in the first, verified in the second
        now = context(step, available)
        found = one.extended(forecast(now), planned, int(planned.max()), UNKNOWN)
        more = found.verify - planned
        assert set(more.tolist()) <= {0, 1}
        assert (found.verify <= now.draft_available).all()
        if found.propensity is not None:
            assert ((found.propensity > 0.0) & (found.propensity <= 1.0)).all()
    assert found.extended == (planned.max() < 4)


def test_a_position_that_is_explored_is_drafted_one_step_before() -> None:
    one = exploring()
    planned = np.array([1, 1, 1])
    assert one.extended(forecast(context(8, [2, 2, 2])), planned, 1, UNKNOWN).depth == 2
    found = one.extended(forecast(context(9, [2, 2, 2])), planned, 1, UNKNOWN)
    assert found.extended
    assert found.verify.sum() > planned.sum()
    assert found.depth == 1


def test_positions_that_are_well_known_are_explored_less_often() -> None:
    def times(observations: Any) -> int:
        one = exploring()
        planned = np.array([1] * 3)
        return sum(
            one.extended(forecast(context(step, [2] * 3)), planned, 1, observations).extended
            for step in range(512)
        )

    assert times(UNKNOWN) == 8 * times(KNOWN) > 0


def test_what_would_not_pay_even_if_accepted_always_is_explored_less_often() -> None:
    def times(slope: float) -> int:
        one = exploring()
        planned = np.array([1] * 3)
        return sum(
            one.extended(
                forecast(context(step, [2] * 3), slope=slope), planned, 1, UNKNOWN
            ).extended
            for step in range(512)
        )

    assert times(0.001) == 8 * times(0.2) > 0


def test_a_position_is_explored_less_often_once_what_was_observed_says_it_cannot_pay() -> None:
    def times(seen: int) -> int:
        one = exploring()
        planned, observed = np.array([1] * 3), np.full(4, seen)
        return sum(
            one.extended(
                forecast(context(step, [2] * 3), hazard=0.2, slope=0.004), planned, 1, observed
            ).extended
            for step in range(512)
        )

    assert times(0) == 8 * times(300) > 0


def test_a_k_is_drafted_in_one_step_and_timed_in_the_next() -> None:
    one = exploring()
    drafting = one.timed(context(4, [4, 4]), None)
    assert drafting is not None
    verifying = one.timed(context(5, [drafting.draft_depth] * 2), None)
    assert verifying is not None
    assert verifying.verify.tolist() == [drafting.draft_depth] * 2
    assert one.timed(context(6, [drafting.draft_depth] * 2), None) is None


@pytest.mark.parametrize(("steps", "timed"), [(200, {0, 1}), (20_000, {0, 1, 2, 4})])
def test_of_what_looks_hopeless_all_but_the_smallest_k_wait_until_they_cost_little(
    steps: int, timed: set[int]
) -> None:
    one = exploring()
    offered = set()
    for step in range(4, steps, 4):
        now = context(step, [4, 4])
        if (plan := one.timed(now, forecast(now, hazard=0.01, slope=0.2))) is not None:
            offered.add(plan.draft_depth)
        one.timed(context(step + 1, [0, 0]), forecast(now))
    assert offered == timed


def test_a_k_that_was_timed_and_is_a_quarter_worse_is_not_timed_again() -> None:
    batch, cost = 8, CostModel(FULL)
    one = Exploring(Explorer(FULL, 0), CostProbes(cost))

    def drafts(step: int) -> int | None:
        now = context(step, [4] * batch)
        plan = one.timed(now, forecast(now, slope=0.005))
        return None if plan is None else plan.draft_depth

    for k in (0, 0, 0, 1, 1, 1, 2, 2, 2):
        cost.learn(step_of(batch, k, k, 0.1))
    assert drafts(4) == 4
    one.timed(context(5, [4] * batch), None)
    cost.learn(step_of(batch, 4, 4, 0.1))
    assert drafts(8) is None


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_the_smallest_k_is_timed_for_all_and_for_a_quarter_in_turns(penalty: float) -> None:
    capability = msgspec.structs.replace(FULL, ragged_penalty=penalty)
    one = exploring()
    verified = []
    for step in range(4, 60, 4):
        drafting = one.timed(context(step, [4] * 8, capability=capability), None)
        at_hand = [0 if drafting is None else drafting.draft_depth] * 8
        verifying = one.timed(context(step + 1, at_hand, capability=capability), None)
        if verifying is not None and at_hand[0] == 1:
            verified.append(int(verifying.verify.sum()))
    assert verified == ([8, 2, 8, 2, 8] if penalty == 0.0 else [8] * 5)


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ({}, 0),  # its depth is steered: K = 0 runs fewer passes
        ({"level": Level.VERIFY}, 3),
        ({"depth_follows": False}, 3),
        ({"depth_follows": False, "off_pass": False}, 3),  # copying from the text may cost a lot
    ],
)
def test_where_the_depth_is_fixed_a_few_steps_of_each_load_leave_drafting_out(
    changes: dict[str, Any], times: int
) -> None:
    capability = msgspec.structs.replace(FULL, **changes)
    one = exploring()

    def left_out(batch: int) -> int:
        found = 0
        for step in range(100):
            now = context(step, [4] * batch, capability=capability)
            plan = one.timed(now, forecast(now))
            if plan is not None and plan.mode is Mode.OFF_WARM:
                assert (plan.verify.sum(), plan.draft_depth) == (0, 0)
                found += 1
        return found

    assert left_out(8) == times
    assert left_out(7) == 0
    assert left_out(3) == times


@pytest.mark.parametrize(("best_tokens", "times"), [(14.0, 2), (11.5, 5)])
def test_once_the_ladder_is_timed_the_k_beside_the_best_are_the_oftener_the_better_they_look(
    best_tokens: float, times: int
) -> None:
    cost = CostModel(FULL)
    one = Exploring(Explorer(FULL, 0), CostProbes(cost))
    for k in (0, 1, 2, 4) * 5:  # the ladder of Kmax 4
        cost.learn(measured(8, k))
    best = Admission(np.full(8, 3), 3, 20.0, 0.1)
    offered = []
    for step in range(0, 200, 4):
        now = context(step, [4] * 8)
        of = forecast(now)._replace(best=best, best_tokens=best_tokens)
        if (plan := one.timed(now, of)) is not None:
            offered.append(plan.draft_depth)
            cost.learn(measured(8, plan.draft_depth))
    assert set(offered) == {3}
    assert times <= len(offered) <= times + 1  # the last is verified a step after it is offered


def test_the_smallest_k_is_timed_for_all_where_it_lies_beside_the_best() -> None:
    cost = CostModel(FULL)
    one = Exploring(Explorer(FULL, 0), CostProbes(cost))
    for k in (0, 1, 2, 4) * 3:
        cost.learn(measured(8, k))
    best = Admission(np.full(6, 2), 2, 16.0, 0.1)
    verified = []
    for step in range(0, 200, 4):
        now = context(step, [4] * 6)  # the load's ladder is timed, batches of this size are not
        of = forecast(now)._replace(best=best, best_tokens=1.0)
        of = of._replace(best_tokens=of.of_best(1) / 0.9)
        drafting = one.timed(now, of)
        verifying = one.timed(context(step + 1, [4] * 6), of)
        if drafting is not None and drafting.draft_depth == 1:
            assert verifying is not None
            verified.append(verifying.verify.tolist())
    assert len(verified) > 2
    assert all(each == [1] * 6 for each in verified), verified


@pytest.mark.parametrize(("best_tokens", "timed_at"), [(8.8, [64, 192, 448]), (9.6, [])])
def test_k_0_is_timed_again_and_again_less_often_where_the_plan_is_little_better(
    best_tokens: float, timed_at: list[int]
) -> None:
    cost = CostModel(FULL)
    one = Exploring(Explorer(FULL, 0), CostProbes(cost))
    for k in (0, 1, 2, 3, 4) * 6:
        cost.learn(measured(8, k))
    best = Admission(np.full(8, 3), 3, 20.0, 0.1)  # K = 0: 8 tokens in 0.1 s
    drafted = []
    for step in range(0, 800, 4):
        now = context(step, [4] * 8)
        of = forecast(now)._replace(best=best, best_tokens=best_tokens)
        if (plan := one.timed(now, of)) is not None:
            drafted.append((step, plan.draft_depth))
        one.timed(context(step + 1, [4] * 8), of)
    assert drafted == [(step, 0) for step in timed_at]


def measured(batch: int, k: int) -> StepOutcome:
    return step_of(batch, k, k, 0.1 + 0.001 * batch * k + 0.002 * k)


def test_a_step_of_prompts_is_no_measurement_and_what_was_drafted_for_it_is_dropped() -> None:
    one = exploring()
    assert one.timed(context(4, [4, 4]), None) is not None
    assert one.timed(context(5, [4, 4], prefill_tokens=4_000), None) is None
    assert one.timed(context(6, [4, 4]), None) is None


def test_going_off_drops_what_was_drafted_to_be_timed_and_explored() -> None:
    one, modes = exploring(), ModeMachine(FULL)
    one.extended(forecast(context(0, [4, 4])), np.array([1, 1]), 1, UNKNOWN)
    assert one.timed(context(4, [4, 4]), None) is not None
    off = one.while_off(forecast(context(5, [4, 4])), modes)
    assert off.verify.tolist() == [0, 0]
    assert off.draft_depth == 0
    assert one.timed(context(5, [4, 4]), None) is None
    assert not one.extended(forecast(context(5, [4, 4])), np.array([1, 1]), 1, UNKNOWN).extended


# ------------------------------------------------------------------- on and off


def finished(plan: SpecPlan, of: StepContext, seconds: float) -> FinishedStep:
    """A step in which the planned drafts were all rejected."""
    nothing = np.zeros(of.batch_size, dtype=np.int64)
    outcome = StepOutcome(
        step=of.step,
        slots=of.slots,
        verified=plan.verify,
        accepted=nothing,
        emitted=nothing + 1,
        batch_size=of.batch_size,
        batch_tokens=of.batch_size + int(plan.verify.sum()),
        context_tokens=int(of.context_tokens.sum()),
        prefill_tokens=of.prefill_tokens,
        draft_depth=plan.draft_depth,
        ragged=False,
        seconds=seconds,
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
