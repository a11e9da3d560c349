"""`bandit`: one K by load, in closed loops whose truth is known, and step by step."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.bandit import HOLD, MIXED, BanditPolicy
from adaptive_spec.policy import build_policy
from adaptive_spec.step import Capability, Level, Mode, SpecPlan
from benchmarks.changes import GPUS
from benchmarks.policy_loop import run
from tests import steps

KMAX = 4
FULL = Capability(level=Level.FULL, max_draft_tokens=KMAX)


def bandit(seed: int = 0, **options: Any) -> BanditPolicy:
    policy = build_policy("adaptive_spec.policies.bandit:BanditPolicy", options, seed=seed)
    assert isinstance(policy, BanditPolicy)
    return policy


@pytest.mark.parametrize(
    ("name", "hazard", "level"), [("H100, 8B", 0.85, Level.UNIFORM), ("CPU", 0.05, Level.FULL)]
)
def test_it_comes_close_to_the_best_fixed_k(name: str, hazard: float, level: Level) -> None:
    """All drafts pay at .85, none do at .05."""
    world, engine = GPUS[name]._replace(hazard=hazard), Capability(level=level, max_draft_tokens=6)
    trace = run(bandit(), lambda _: world, lambda _: 16, 750, 0, engine)
    assert trace.score(250, 750) >= 0.95


def rate(k: int, best: int) -> float:
    """Tokens per second of a request at K."""
    return 100.0 - 10.0 * abs(k - best)


def step_once(
    policy: BanditPolicy, number: int, best: int, batch: int = 4, ran: int | None = None, **changes
) -> SpecPlan:
    """One step in which K brings `rate`; its drafts are all accepted."""
    capability = changes.pop("capability", FULL)
    fields = {"draft_available": capability.max_draft_tokens} | changes.pop("context", {})
    context = steps.context(batch, capability, step=number, **fields)
    plan = policy.plan(context)
    verified = plan.verify if ran is None else np.full(batch, ran)
    k = int(verified.max(initial=0))
    depth = plan.draft_depth if ran is None else ran
    fields = {"draft_depth": depth, "seconds": (k + 1) / rate(k, best), "ragged": False}
    outcome = steps.outcome(context, verified, verified, **(fields | changes))
    policy.observe(finished_step(context, plan, outcome))
    return plan


def ran(policy: BanditPolicy, count: int, best: int, **options) -> list[int]:
    """K drafted for in the last quarter of so many steps."""
    plans = [step_once(policy, n, best, **options) for n in range(count)]
    return [plan.draft_depth for plan in plans[-count // 4 :]]


@pytest.mark.parametrize("best", range(KMAX + 1))
def test_the_k_that_brings_the_most_is_found(best: int) -> None:
    found = ran(bandit(), 600, best)
    assert found.count(best) >= 0.9 * len(found)


def test_what_has_faded_does_not_hold_it_back() -> None:
    policy = bandit(discount=0.99)
    ran(policy, 1000, KMAX)
    assert np.median(ran(policy, 400, 0)) <= 1


def test_each_load_has_its_own_k() -> None:
    policy = bandit()
    for known in (False, True):
        for batch, best in ((2, 4), (100, 0)):
            first = step_once(policy, 0, best, batch=batch).draft_depth
            assert first == best or not known
            found = ran(policy, 400 + HOLD // 2, best, batch=batch)
            assert found.count(best) >= 0.8 * len(found), batch


@pytest.mark.parametrize("seed", range(4))
def test_a_new_load_begins_with_what_the_nearest_has_shown(seed: int) -> None:
    policy = bandit(seed)
    assert step_once(policy, 0, 3, batch=8, context={"engine_k": 1}).draft_depth == 1
    ran(policy, 600, 3, batch=8)
    plans = [step_once(policy, n, 3, batch=16) for n in range(2 * HOLD)]
    assert {plan.draft_depth for plan in plans} <= {2, 3, 4}


def test_without_drafts_the_drafter_stays_warm() -> None:
    capability = Capability(level=Level.FULL, max_draft_tokens=KMAX, cold_off=True)
    policy = bandit()
    plans = [step_once(policy, n, 0, capability=capability) for n in range(300)]
    assert plans[-1].draft_depth == 0
    assert {plan.mode for plan in plans} == {Mode.ON, Mode.OFF_WARM}


def test_the_step_of_a_change_does_not_count() -> None:
    """It verifies what the K before has drafted, and drafts another K."""
    policy = bandit(seed=3)
    seen = [step_once(policy, n, 2) for n in range(100)]
    for before, plan in pairwise(seen):
        assert (plan.memo is None) == (plan.draft_depth != before.draft_depth)
        assert plan.verify.tolist() == [before.draft_depth] * 4


def test_what_another_plan_ran_counts_for_its_k() -> None:
    """As in shadow mode: the engine's own K = 3 runs."""
    policy = bandit()
    for number in range(40):
        step_once(policy, number, 3, ran=3)
    (shown,) = policy.state()["shown"]
    assert np.flatnonzero(shown[0]).tolist() == [3]


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": float("nan")},
        {"seconds": 0.0},
        {"context": {"opted_out": np.ones(4, dtype=np.bool_)}},
        {"prefill_tokens": 100},
    ],
    ids=["nan", "0 s", "opted out", "prompts"],
)
def test_steps_that_tell_nothing_do_not_count(changes: dict[str, Any]) -> None:
    policy = bandit()
    for number in range(MIXED):
        step_once(policy, number, 3, **changes)
    assert policy.state()["loads"] == []
    if "prefill_tokens" in changes:  # there are no others
        step_once(policy, MIXED, 3, **changes)
        assert policy.state()["loads"] == [2]


def test_one_odd_step_counts_little() -> None:
    policy = bandit()
    ran(policy, 600, 2)
    step_once(policy, 600, 2, seconds=1e9)
    found = ran(policy, 80, 2)
    assert found.count(2) >= 0.8 * len(found)


def test_what_was_learned_goes_on_after_a_restart() -> None:
    policy = bandit()
    ran(policy, 600, 3)
    saved = json.loads(msgspec.json.encode(policy.state()))
    after = bandit(seed=1)
    after.restore({})
    after.restore(saved)
    assert after.state() == saved
    assert set(ran(after, 2 * HOLD, 3)) <= {2, 3, 4}


def test_a_state_of_other_k_is_refused_and_learning_starts_over() -> None:
    policy = bandit()
    ran(policy, 40, 3)
    saved = policy.state()
    other = Capability(level=Level.FULL, max_draft_tokens=2)
    begun, fresh = bandit(), bandit()
    step_once(begun, 0, 1, capability=other)
    with pytest.raises(PolicyError, match="the engine's are"):
        begun.restore(saved)
    fresh.restore(saved)
    with pytest.raises(PolicyError, match="of another K"):
        step_once(fresh, 0, 1, capability=other)
    assert step_once(fresh, 1, 1, capability=other).draft_depth <= 2


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((0, 0), -1.0),
        ((1, 2), float("nan")),
        ((2, 1), float("inf")),
        ((2, 1), 1e10),
        ((3, 0), 0.0),
        ((3, 4), float("nan")),
    ],
)
def test_a_state_beyond_what_steps_can_show_is_refused(
    place: tuple[int, int], value: float
) -> None:
    policy = bandit()
    ran(policy, 40, 3)
    state = policy.state()
    state["shown"][0][place[0]][place[1]] = value
    with pytest.raises(PolicyError, match="not finite, or beyond"):
        bandit().restore(state)
