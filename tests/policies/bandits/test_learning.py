"""Bandits in a closed loop whose truth is known."""

from functools import cache

import numpy as np
import pytest

from adaptive_spec.policy import build_policy
from adaptive_spec.step import Level
from tests.policies.bandits.bandits import PATHS, bandit
from tests.policies.closed_loop import GPU, alike, run

KMAX = 4


def speed(policy, hazard: float, steps: int = 500, **options) -> float:
    def hazards(random: np.random.Generator) -> np.ndarray:
        return alike(hazard)(random)[:KMAX]

    found = run(
        policy,
        concurrency=16,
        hazards=hazards,
        machine=GPU,
        steps=steps,
        kmax=KMAX,
        **{"warmup": 250, **options},
    )
    return found.tokens_per_second


@cache
def fixed(k: int, hazard: float) -> float:
    return speed(build_policy("static", {"k": k}), hazard)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHS)
def test_a_bandit_comes_close_to_the_best_fixed_k(name: str) -> None:
    """Deep drafts pay at .85, none do at .05: always one of them would lose a fifth or more."""
    for hazard, best in ((0.85, KMAX), (0.05, 0)):
        reached = speed(bandit(name), hazard)
        assert reached >= 0.93 * fixed(best, hazard)


@pytest.mark.parametrize("level", [Level.UNIFORM, Level.VERIFY])
def test_bandits_work_at_coarser_levels(level: Level) -> None:
    best = max(
        speed(build_policy("static", {"k": k}), 0.85, steps=200, level=level)
        for k in range(KMAX + 1)
    )
    for name in ("ucb", "linucb"):
        assert speed(bandit(name), 0.85, steps=200, level=level) >= 0.93 * best


@pytest.mark.long
@pytest.mark.parametrize("name", PATHS)
def test_evidence_that_fades_follows_a_drafter_that_breaks_down(name: str) -> None:
    after = []
    for seed in range(4):
        policy = bandit(name, seed)
        speed(policy, 0.9, steps=300)
        after.append(speed(policy, 0.05, steps=200, warmup=300, seed=1))
    assert np.mean(after) >= 0.93 * fixed(0, 0.05)


@pytest.mark.parametrize("name", ["ucb", "thompson"])
def test_what_a_large_batch_has_seen_does_not_hold_it_back(name: str) -> None:
    """Evidence is capped in observations: as many steps of 16 requests are soon outweighed."""
    policy = bandit(name)
    speed(policy, 0.9, steps=600)
    after = speed(policy, 0.05, steps=100, warmup=120, seed=1)
    assert after >= 0.9 * fixed(0, 0.05)


def test_every_bandit_is_listed_once() -> None:
    assert len({policy.name for policy in map(bandit, PATHS)}) == len(PATHS)
