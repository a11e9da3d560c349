"""Nightjar: blocks and bins, exploration, the greedy arm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Mode, PolicyError, build_policy
from adaptive_spec.policies.baselines.papers.nightjar import BinGreedy
from tests.policies.baselines.short_simulation import simulated_mean_k
from tests.policies.baselines.tiny_engine import TinyEngine, linear

NAME = "adaptive_spec.policies.baselines.papers.nightjar:NightjarPolicy"


def nightjar(seed: int = 0, **options: Any) -> Any:
    return build_policy(NAME, options, seed=seed)


def known(means: list[float]) -> BinGreedy:
    """A bandit that has seen each arm so often that the imagined round is nothing."""
    bandit = BinGreedy(len(means))
    bandit.counts[:] = 10**6
    bandit.means[:] = means
    return bandit


def test_an_arm_is_held_for_its_bin() -> None:
    # Blocks of 1, 2, 4, ... rounds in bins of 1, 1, 2, 2, 4, 5, ...: whole bins, so a block may
    # run over.
    random = np.random.default_rng(0)
    bandit = known([1.0, 1.1, 1.2])
    begin = 0
    for block in range(9):
        length = math.isqrt(2**block)
        begin += math.ceil(2**block / length) * length
    chosen = [bandit.select(random) for _ in range(begin + 24 * 22)][begin:]
    bins = [chosen[i : i + 22] for i in range(0, len(chosen), 22)]
    assert all(len(set(one)) == 1 for one in bins)
    assert len({one[0] for one in bins}) > 1


def test_exploration_shrinks_within_a_block_but_does_not_end() -> None:
    shares = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        bandit = known([1.0, 1.0, 1.0, 1.0, 9.0])
        chosen = np.array([bandit.select(random) for _ in range(1023)])
        shares.append((chosen[511:] != 4).mean())
    assert 0.20 < np.mean(shares) < 0.45


def test_an_arm_that_never_ran_is_only_drawn() -> None:
    random = np.random.default_rng(1)
    bandit = known([1.0, 1.0, 1.0])
    bandit.counts[2], bandit.means[2] = 0, 0.0
    for _ in range(2000):
        arm = bandit.select(random)
        if bandit.probability < 1.0:
            # Drawn with a share of the exploration, never greedy.
            assert arm != 2 or bandit.probability <= 1 / 3


def test_it_settles_on_the_best_arm_of_each_batch_size() -> None:
    # A quarter of the first drafts is accepted. 4 requests: 1.25 tokens in 58 ms beat 1 in 54;
    # 40 requests: 1.25 in 130 ms don't beat 1 in 90.
    engine = TinyEngine(nightjar(), seconds=linear(0.05, 1e-3, 2e-4))
    late: dict[int, list[int]] = {4: [], 40: []}
    for _ in range(8):
        for batch in (4, 40):
            engine.batch, engine.accepts = batch, (1, 0, 0, 0) * (batch // 4)
            late[batch] = engine.verified(400)
    assert np.bincount(late[4]).argmax() == 1
    assert np.bincount(late[40]).argmax() == 0


@pytest.mark.parametrize("delay", [0, 2])
def test_an_arm_is_rewarded_for_clean_rounds_only(delay: int) -> None:
    cost = linear(0.01, 1e-5, 5e-4)
    policy = nightjar(seed=3)
    TinyEngine(policy, accepts=5, seconds=cost, delay=delay).run(600)
    (bandit,) = policy.contexts.values()
    # Every round of an arm is the same, so its mean is that of one.
    wanted = [(k + 1) / cost(4 * (k + 1), k) for k in range(6)]
    assert bandit.means == pytest.approx(wanted)


def test_plans_say_with_which_probability_they_were_drawn() -> None:
    engine = TinyEngine(nightjar())
    first = engine.step()
    assert first.propensity is not None
    assert first.propensity.tolist() == pytest.approx([1 / 6] * 4)


def test_at_k_0_the_drafter_keeps_its_state() -> None:
    engine = TinyEngine(nightjar(), cold_off=True)
    modes = {plan.mode for plan in (engine.step() for _ in range(300))}
    assert modes == {Mode.ON, Mode.OFF_WARM}


def test_it_has_no_options() -> None:
    with pytest.raises(PolicyError, match="max_contexts"):
        nightjar(max_contexts=2)


def test_simulated_it_drafts_deeper_with_a_good_drafter_than_with_a_dead_one() -> None:
    good, dead = (
        simulated_mean_k(nightjar(), model, tokens=12000, warmup_steps=300)
        for model in ("good", "dead")
    )
    assert good > dead + 0.7
