"""No world makes the controller raise, fail open on a legal step, or grow without end."""

from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.policy import Policy, available_policies, build_policy
from adaptive_spec.testing.memory_footprint import memory_footprint
from tests.chaos.world import EVERYTHING, NOTHING, Costs, World
from tests.policies.test_contract import OPTIONS

WORLDS, STEPS, FEW_STEPS = 16, 1_250, 300
"""With all other policies 3 x 10^4 steps."""
MOST_VALUES = 90_000
"""Entries of arrays and containers that a controller may hold once all its requests have ended;
40,000 are the longest runs of the requests that ended last."""


def held(world: World) -> int:
    """Entries that are kept; up to sixteen steps wait to be counted, and are counted before."""
    world.controller.counters.count()
    return memory_footprint(world.controller)


def learned(seed: int) -> Policy:
    return build_policy("goodput", {}, seed=seed)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(WORLDS))
def test_every_step_of_a_random_world_is_planned(seed: int) -> None:
    world = World(learned(seed), seed).run(STEPS)
    world.end()
    assert held(world) < MOST_VALUES
    unexpected = set(world.controller.counters.failures) - {"impossible outcome"}
    assert not unexpected


@pytest.mark.chaos
@pytest.mark.parametrize("name", sorted(set(available_policies(baselines=True)) - {"goodput"}))
def test_every_policy_plans_every_step_of_a_random_world(name: str) -> None:
    def make(seed: int) -> Policy:
        return build_policy(name, OPTIONS.get(name, {}), seed=seed, baselines=True)

    World(make(0), 100 + sum(map(ord, name))).run(FEW_STEPS)


@pytest.mark.long
def test_a_million_steps() -> None:
    for seed in range(100, 140):
        world = World(learned(seed), seed).run(25_000)
        world.end()
        assert held(world) < MOST_VALUES


def test_impossible_outcomes_are_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world in which every tenth outcome lies plans like one in which these are lost."""
    plans = []
    for lies in (True, False):
        engine = Capability(level=Level.FULL, max_draft_tokens=4)
        world = World(learned(3), 3, NOTHING, engine)
        world.load = 8
        deliver = world.controller.observe

        def observe(outcome: Any, lies: bool = lies, deliver: Any = deliver) -> None:
            if outcome.step % 10:
                deliver(outcome)
            elif lies:
                outcome.accepted[:] = outcome.verified + 1
                deliver(outcome)

        monkeypatch.setattr(world.controller, "observe", observe)
        plans.append([world.one_step().verify.tolist() for _ in range(300)])
    assert plans[0] == plans[1]


@pytest.mark.chaos
@pytest.mark.parametrize(("load", "hazard"), [(1, 0.7), (8, 0.05), (8, 0.95), (64, 0.7)])
@pytest.mark.parametrize("costs", [Costs(7e-3, 2e-5, 5e-4), Costs(2e-3, 6e-4, 1e-4)])
def test_after_chaos_the_best_fixed_k_is_reached_again(
    load: int, hazard: float, costs: Costs
) -> None:
    assert recovered(load, hazard, costs, confidence=False) >= 0.9


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [0, 2, 7])
def test_step_times_of_gone_worlds_do_not_hold_recovery_up(seed: int) -> None:
    """Confidence that tells nothing leaves K = 1 in many of these worlds, and deeper K untimed."""
    costs = Costs(7e-3, 2e-5, 5e-4)
    assert recovered(8, 0.95, costs, confidence=True, seed=seed, settling=4000) >= 0.9


def recovered(
    load: int,
    hazard: float,
    costs: Costs,
    *,
    confidence: bool,
    seed: int | None = None,
    settling: int = 800,
) -> float:
    """Tokens per second after a wild world over those of the best fixed K."""
    engine = Capability(level=Level.FULL, max_draft_tokens=6)
    seed = load if seed is None else seed
    world = World(learned(seed), seed, EVERYTHING, engine)
    world.shows_confidence = confidence
    settle(world.run(600), costs, hazard=hazard, load=load)
    return tokens_per_second(world, settling) / best_fixed(world)


def settle(world: World, costs: Costs, *, hazard: float, load: int) -> None:
    """From here on nothing changes and nothing goes wrong."""
    world.faults = NOTHING
    world.opts_out = world.looks_up = False
    world.costs, world.hazard, world.burst = costs, hazard, 0.0
    world.load, world.lifetime = load, 200
    world.controller.mode = "on"


def tokens_per_second(world: World, settling: int, steps: int = 300) -> float:
    """The next probe of a drafter that was of no use may be some 500 steps away."""
    for _ in range(settling):
        world.one_step()
    world.tokens = world.seconds = 0.0
    for _ in range(steps):
        world.one_step()
    return world.tokens / world.seconds


def best_fixed(world: World) -> float:
    """Expected tokens per second of the best K."""
    reached = np.cumprod(np.full(world.capability.max_draft_tokens, world.hazard))
    return max(
        world.load
        * (1.0 + float(reached[:k].sum()))
        / world.costs.seconds(world.load * (1 + k), max(k, 1))
        for k in range(world.capability.max_draft_tokens + 1)
    )
