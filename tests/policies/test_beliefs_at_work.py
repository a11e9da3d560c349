"""`goodput` in closed loops: near the best fixed K, within the contract, and restorable."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level, Mode, PolicyError
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.testing.noninterference import check_noninterference
from benchmarks.changes import GPUS
from benchmarks.policy_loop import World, run
from tests import steps as made
from tests.policies.closed_loop import observe, plain_steps
from tests.policies.saved_states import GONE, changed, places
from tests.refused import refused

KMAX = 6


def goodput(seed: int = 1, **options: Any) -> GoodputPolicy:
    return GoodputPolicy(GoodputOptions(**options), seed=seed)


GPU, CPU = GPUS["H100, 8B"], GPUS["CPU"]


@pytest.mark.parametrize(
    ("batch", "world"),
    [
        (1, GPU._replace(hazard=0.8)),
        (16, CPU._replace(hazard=0.9)),
        (16, CPU._replace(hazard=0.6)),
        (16, GPU),
        (64, GPU._replace(hazard=0.5)),
        (16, CPU._replace(hazard=0.03)),
        (64, GPU._replace(hazard=0.03)),
    ],
    ids=["1", "16, CPU", "16, CPU, dear tokens", "16", "64", "CPU, none", "64, none"],
)
def test_it_reaches_the_best_fixed_k(batch: int, world: World) -> None:
    trace = run(goodput(), lambda _: world, lambda _: batch, 600, 0)
    assert trace.score(300, 600) >= 0.97
    if world.hazard < 0.1:
        assert (trace.k[300:] == 0.0).mean() > 0.9


def test_unlike_requests_get_k_of_their_own() -> None:
    hazards, seen = np.repeat([0.93, 0.75, 0.5, 0.2], 4)[:, None], []
    for _, plan in plain_steps(goodput(), made.full(KMAX), 300, batch=16, hazard=lambda _: hazards):
        seen.append(len(set(plan.verify.tolist())) > 2)
    assert np.mean([seen[n] for n in range(100, 300) if n % 25 > 5]) > 0.9


@pytest.mark.slow
def test_few_steps_measure_at_a_constant_load() -> None:
    """After 1,000 steps 0 to 3.4 % of 18 runs measure, 0.8 % in the mean."""
    shares = []
    for batch in (1, 16, 64):
        policy, plans = goodput(), []
        decide = policy.plan
        policy.plan = lambda of, decide=decide, plans=plans: plans.append(decide(of)) or plans[-1]
        run(policy, lambda _: GPU._replace(hazard=0.6), lambda _, batch=batch: batch, 1300, 0)
        shares.append(np.mean([plan.measures for plan in plans[1000:]]))
    assert np.mean(shares) <= 0.03, shares
    assert max(shares) <= 0.07, shares


# ------------------------------------------------------------------ contract


@pytest.mark.parametrize("level", list(Level))
def test_k_does_not_look_ahead(level: Level) -> None:
    plain = Capability(level=level, max_draft_tokens=5, token_buckets=(4, 8, 16, 24))
    if level is Level.UNIFORM:
        plain = Capability(level=level, max_draft_tokens=5, ladder=(0, 1, 3, 5))
    assert check_noninterference(goodput(), plain).rounds > 0


@pytest.mark.parametrize("shown", ["at hand", "with the outcome", "and not used"])
def test_confidence_is_learned_from_and_admits_drafts_that_are_sure(shown: str) -> None:
    policy, random = goodput(confidence=shown != "and not used"), np.random.default_rng(0)
    engine = Capability(level=Level.FULL, max_draft_tokens=4)
    more, errors = [], []
    for number in range(400):
        sure = random.random((16, 4)) < 0.5
        confidence = np.where(sure, 0.95, 0.3)
        at_hand = None if shown == "with the outcome" else confidence
        context = made.context(16, engine, step=number, confidence=at_hand, now=0.01 * number)
        plan = policy.plan(context)
        hits = random.random((16, 4)) < np.where(sure, 0.95, 0.2)
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), plan.verify)
        seconds = 0.01 + 2e-4 * int(plan.verify.sum()) + 5e-4 * max(plan.draft_depth, 1)
        observe(policy, context, plan, accepted, seconds, confidence=confidence)
        if number > 200 and not plan.measures and plan.verify.any():
            first = sure[:, 0]
            more.append(plan.verify[first].mean() - plan.verify[~first].mean())
            errors.append(16 + accepted.sum() - plan.predicted_tokens)
    assert len(errors) > 100
    assert abs(np.mean(errors)) < 1.0, np.mean(errors)  # of some 30 tokens
    found = policy.hazard_quality()
    if shown == "and not used":
        assert "confidence" not in found
    else:
        assert found["confidence"]["auc"] > found["history"]["auc"] + 0.1
        assert found["confidence"]["ece"] < 0.08
    assert np.mean(more) > 0.8 if shown == "at hand" else abs(np.mean(more)) < 0.3


def test_seconds_that_a_step_costs_besides_make_drafting_deeper() -> None:
    """Fifty milliseconds come whatever is drafted: of each step more is worth verifying."""
    policy = trained(200)
    ks = []
    for shared in (0.0, 0.05):
        policy._trial = None
        context = made.context(
            capability=KMAX, slots=np.arange(1000, 1064), step=1, shared_seconds=shared
        )
        ks.append(policy.plan(context).verify.mean())
    assert ks[1] > ks[0] + 0.5, ks


def test_opted_out_requests_get_no_drafts_and_take_none_from_the_others() -> None:
    """One of 24 takes part. Its drafts are all accepted: five tokens for 1.5 times the seconds.

    Counted among all, it would lose: 28 tokens in place of 24.
    """
    policy, out = goodput(), np.arange(24) > 0
    engine = Capability(level=Level.FULL, max_draft_tokens=4, cold_off=True)
    possible = np.where(out, 0, 4)
    limits = {"opted_out": out, "draft_possible": possible, "draft_available": possible}
    for number in range(120):
        context = made.context(24, engine, step=number, now=float(number), **limits)
        plan = policy.plan(context)
        assert not plan.verify[1:].any()
        assert plan.mode is not Mode.OFF_COLD
        observe(policy, context, plan, plan.verify, 0.01 + 1.25e-3 * max(plan.draft_depth, 1))
    assert policy.switch.lost < 0.0
    assert plan.verify[0] == 4


def test_the_drafter_stops_where_it_loses_and_comes_back_where_it_gains() -> None:
    engine = Capability(level=Level.FULL, max_draft_tokens=4, cold_off=True)
    world = {"hazard": lambda step: 0.02 if step < 1000 else 0.9, "token": 1e-4, "draft_pass": 3e-3}
    modes = [plan.mode for _, plan in plain_steps(goodput(), engine, 3000, **world)]
    cold = np.array([mode is Mode.OFF_COLD for mode in modes])
    assert cold[500:1000].mean() > 0.8
    assert cold[-300:].mean() < 0.1
    assert not cold[:3].any()


def test_at_the_return_of_the_drafter_acceptance_is_open_again() -> None:
    policy = goodput()
    engine = Capability(level=Level.FULL, max_draft_tokens=4, cold_off=True)
    policy.plan(made.context(8, engine, now=1.0))
    before = policy.acceptance.covariance.copy()
    policy.switch.cold, policy.switch.until, policy.switch._batch = True, 50.0, 8
    policy._trial = 3
    cold = policy.plan(made.context(8, engine, step=1, now=20.0))
    assert (cold.mode, cold.draft_depth, cold.verify.any()) == (Mode.OFF_COLD, 0, False)
    assert policy.acceptance.covariance == pytest.approx(before)
    back = policy.plan(made.context(8, engine, step=3, now=51.0))
    assert back.mode is not Mode.OFF_COLD
    assert "timing" not in back.reason  # a trial of the time before is no longer due
    assert policy.acceptance.covariance == pytest.approx(before + policy.acceptance.prior)


@pytest.mark.parametrize(
    ("level", "cold_off"),
    [(Level.FULL, False), (Level.VERIFY, True)],
)
@pytest.mark.slow
def test_drafts_that_pay_again_are_seen_though_none_was_planned(
    level: Level, cold_off: bool
) -> None:
    """Of 3,000 steps whose drafts are hopeless a few look; then 19 of 20 drafts are accepted."""
    engine = Capability(level=level, max_draft_tokens=4, cold_off=cold_off)
    world = {"hazard": lambda step: 0.02 if step < 3000 else 0.95, "token": 4e-4}
    plans = [plan for _, plan in plain_steps(goodput(), engine, 7500, **world)]
    drafted = [bool(plan.verify.any()) for plan in plans]
    assert sum(drafted[500:3000]) <= 50
    assert np.mean(drafted[-200:]) > 0.9


def test_a_ladder_without_0_never_leaves_the_drafter_out() -> None:
    engine = Capability(level=Level.UNIFORM, max_draft_tokens=4, ladder=(1, 4), cold_off=True)
    world = {"hazard": 0.02, "token": 1e-3, "draft_pass": 5e-3}
    for _, plan in plain_steps(goodput(), engine, 600, **world):
        assert plan.mode is Mode.ON


def test_prompts_alone_keep_the_depth_of_the_last_step() -> None:
    policy = goodput()
    nothing = policy.plan(made.context(0, KMAX))
    assert (nothing.draft_depth, nothing.verify.size) == (KMAX, 0)
    last = policy.plan(made.context(4, KMAX, step=1))
    again = policy.plan(made.context(0, KMAX, step=2))
    assert again.draft_depth == last.draft_depth


# --------------------------------------------------------------------- state


def trained(steps: int = 120) -> GoodputPolicy:
    policy = goodput()
    run(policy, lambda _: GPU, lambda _: 8, steps, 0)
    return policy


def planned(policy: GoodputPolicy) -> list[Any]:
    """Plans of fifty steps of strangers, at all loads, none of which searches a trial."""
    random, found = np.random.default_rng(5), []
    policy._trial = None
    for number in range(50):
        batch = int(random.integers(1, 65))
        slots = 1000 + random.permutation(200)[:batch]
        context = made.context(
            capability=KMAX,
            slots=slots,
            step=4 * number + 1,
            draft_available=random.integers(0, KMAX + 1, batch),
            context_tokens=random.integers(50, 400, batch),
        )
        plan = policy.plan(context)
        found.append(
            (
                plan.verify.tolist(),
                plan.draft_depth,
                plan.mode,
                round(plan.predicted_seconds, 9),
                round(plan.predicted_tokens, 6),
            )
        )
    return found


def test_a_restored_policy_plans_as_the_one_that_went_on() -> None:
    """Of requests that both have never seen: what is known of single requests is not saved."""
    policy = trained()
    state = json.loads(json.dumps(policy.state(), allow_nan=False))
    fresh = goodput()
    fresh.restore(state)
    assert fresh.state() == state  # before it knows its engine
    expected = planned(policy)
    assert repr(planned(fresh)) == repr(expected)
    assert repr(planned(goodput())) != repr(expected)
    running = goodput(seed=3)
    run(running, lambda _: CPU, lambda _: 4, 30, 0)
    running.restore(state)
    assert repr(planned(running)) == repr(expected)


def test_a_policy_without_steps_has_an_empty_state_and_takes_one() -> None:
    policy = goodput()
    assert policy.state() == {}
    policy.restore({})
    policy.plan(made.context(2, KMAX))
    state = json.loads(json.dumps(policy.state()))
    assert state["step_times"] is None
    other = goodput()
    other.restore(state)
    other.plan(made.context(2, KMAX))


WRONG: list[Any] = [None, "x", -1, math.nan, math.inf, [], {}]


def test_a_damaged_state_is_refused_in_one_line_or_does_no_harm() -> None:
    state = json.loads(json.dumps(trained(40).state()))
    refusals = 0
    for place, wrong in itertools.product(places(state), (*WRONG, GONE)):
        fresh = goodput()
        try:
            fresh.restore(changed(state, place, wrong))
        except PolicyError as error:
            refusals += 1
            if "\n" in str(error):
                pytest.fail(f"{place}: {error}")
            assert fresh.state() == {}, f"refused, but something was taken up: {place}"
            continue
        try:
            fresh.plan(made.context(3, KMAX))
        except PolicyError:  # only the engine's Kmax shows that it does not fit
            fresh.plan(made.context(3, KMAX))
        context = made.context(3, KMAX, step=1)
        plan = fresh.plan(context)
        observe(fresh, context, plan, 0, 0.01)
        json.dumps(fresh.state(), allow_nan=False)
    assert refusals > 100


def test_a_state_of_another_schema_or_kmax_is_refused_and_nothing_is_lost() -> None:
    state = trained(20).state()
    policy = goodput()  # as version 0.1 wrote it: hazards by position, and a cost profile
    before = {"schema": 1, "acceptance": {"position_effect": [0.7] * KMAX}, "profile": None}
    with refused(PolicyError, "state: schema 1 is of another version, 2 is expected"):
        policy.restore(before)
    assert policy.state() == {}
    running = goodput()
    assert list(plain_steps(running, made.full(3), 20))
    before = json.dumps(running.state())
    with refused(PolicyError, "state: of Kmax 6, the engine's is 3"):
        running.restore(state)
    assert json.dumps(running.state()) == before
    later = goodput()
    later.restore(state)
    with refused(PolicyError, "3 are expected"):
        later.plan(made.context(2, 3))
    assert later.plan(made.context(2, 3)).verify.size == 2  # said once, it begins anew


def test_the_prior_of_an_option_is_what_it_begins_with() -> None:
    low, high = goodput(prior_hazard=0.2), goodput(prior_hazard=0.9)
    for each in (low, high):
        each.plan(made.context(4, KMAX))
    hazards = [each.acceptance.predict(np.arange(1))[0][0, 0] for each in (low, high)]
    assert hazards == pytest.approx([0.2, 0.9])
