"""BanditSpec: turns, generations, the bonus that is the same for all, and losses without time."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine, linear

UCB = "adaptive_spec.sim.baselines.papers.banditspec:BanditSpecUcbPolicy"
EXP3 = "adaptive_spec.sim.baselines.papers.banditspec:BanditSpecExp3Policy"
COST = linear(0.01, 1e-5, 5e-4)


def bandit(name: str, seed: int = 0, **options: Any) -> Any:
    return build_baseline(name, options, seed=seed)


def rounds(engine: TinyEngine, steps: int) -> list[int]:
    """K of the steps that are rounds: what is drafted is what is verified."""
    found = []
    for _ in range(steps):
        plan = engine.step()
        if plan.verify.max() == plan.draft_depth:
            found.append(plan.draft_depth)
    return found


def test_ucb_takes_turns_first() -> None:
    engine = TinyEngine(bandit(UCB), accepts=5, seconds=COST)
    # 1, 2, 3, 4, 1, 2, 3, then by score; each deeper K takes a step to draft for it.
    assert rounds(engine, 13)[:7] == [1, 2, 3, 4, 1, 2, 3]


def test_ucb_is_greedy_after_its_turns() -> None:
    # K = 1 looks best in its turns, then the drafter gets better; nobody tries it.
    engine = TinyEngine(bandit(UCB, generation_tokens=0), accepts=1, seconds=COST)
    engine.run(30)
    engine.accepts = 5
    assert set(engine.run(3000)) == {1}


def test_corrected_ucb_tries_again_and_finds_out() -> None:
    engine = TinyEngine(bandit(UCB, generation_tokens=0, corrected=True), accepts=1, seconds=COST)
    engine.run(30)
    engine.accepts = 5
    engine.run(2000)
    assert Counter(engine.run(500)).most_common(1)[0][0] == 4


def test_every_generation_begins_anew() -> None:
    engine = TinyEngine(bandit(UCB, generation_tokens=100), accepts=0, seconds=COST)
    found = rounds(engine, 400)
    # One token per step: about 100 steps each, the first of them in turn.
    assert found.count(4) >= 3
    assert Counter(found).most_common(1)[0][0] == 1
    policy = engine.policy
    assert policy.emitted < 100


def test_a_reward_of_an_earlier_generation_is_not_credited() -> None:
    policy = bandit(UCB, generation_tokens=30)
    engine = TinyEngine(policy, accepts=0, seconds=COST, delay=2)
    for _ in range(400):
        engine.step()
        assert sum(policy.counts) <= policy.round


def test_rewards_are_those_of_clean_rounds() -> None:
    policy = bandit(UCB, generation_tokens=0)
    TinyEngine(policy, accepts=5, seconds=COST).run(60)
    assert policy.means == pytest.approx([4 * (k + 1) / COST(4 * (k + 1), k) for k in (1, 2, 3, 4)])


def test_exp3_prefers_the_longest_k_though_time_speaks_against_it() -> None:
    dear = linear(0.001, 1e-5, 5e-3)
    plain = TinyEngine(bandit(EXP3, generation_tokens=0), accepts=2, seconds=dear)
    corrected = TinyEngine(
        bandit(EXP3, generation_tokens=0, corrected=True), accepts=2, seconds=dear
    )
    for engine in (plain, corrected):
        engine.run(3000)
    # 1.5 tokens per pass at K = 1 and 2, less at 3 and 4; a loss without time knows K >= 2 only.
    counts, right = Counter(rounds(plain, 1000)), Counter(rounds(corrected, 1000))
    assert counts[3] + counts[4] > counts[1] + 100
    assert right[1] > right[3] + right[4]


def test_exp3_weighs_a_loss_by_the_probability_of_its_arm() -> None:
    policy = bandit(EXP3, seed=4, generation_tokens=0)
    engine = TinyEngine(policy, accepts=1, seconds=COST)
    losses = np.zeros(4)
    drawn = 1.0
    for step in range(60):
        plan = engine.step()
        if plan.propensity[0] < 1.0:
            drawn = float(plan.propensity[0])
        if plan.verify.max() == plan.draft_depth:
            losses[plan.draft_depth - 1] += (1 - 2 / 5) / drawn
        assert policy.losses == pytest.approx(losses), step


def test_arms_the_engine_cannot_run_are_left_out() -> None:
    engine = TinyEngine(bandit(UCB), accepts=5, kmax=3, ladder=(0, 1, 3))
    assert set(engine.run(100)) == {1, 3}
