"""Nightjar: blocks and bins, exploration, the greedy arm, the price of switching on."""

import math
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Mode
from adaptive_spec.sim.baselines.papers.nightjar import BinGreedy
from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine, linear

NAME = "adaptive_spec.sim.baselines.papers.nightjar:NightjarPolicy"
FREE = np.zeros(3)


def nightjar(seed: int = 0, **options: Any) -> Any:
    return build_baseline(NAME, options, seed=seed)


def known(means: list[float], *, inverse: bool = False) -> BinGreedy:
    """A bandit that has seen each arm so often that the imagined round is nothing."""
    bandit = BinGreedy(len(means), inverse=inverse)
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
    chosen = [bandit.select(FREE, random) for _ in range(begin + 24 * 22)][begin:]
    bins = [chosen[i : i + 22] for i in range(0, len(chosen), 22)]
    assert all(len(set(one)) == 1 for one in bins)
    assert len({one[0] for one in bins}) > 1


@pytest.mark.parametrize(("inverse", "low", "high"), [(False, 0.20, 0.45), (True, 0.05, 0.18)])
def test_exploration_shrinks_within_a_block_but_does_not_end(
    inverse: bool, low: float, high: float
) -> None:
    shares = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        bandit = known([1.0, 1.0, 1.0, 1.0, 9.0], inverse=inverse)
        chosen = np.array([bandit.select(np.zeros(5), random) for _ in range(1023)])
        shares.append((chosen[511:] != 4).mean())
    assert low < np.mean(shares) < high


def test_an_arm_that_never_ran_is_only_drawn() -> None:
    random = np.random.default_rng(1)
    bandit = known([1.0, 1.0, 1.0])
    bandit.counts[2], bandit.means[2] = 0, 0.0
    for _ in range(2000):
        arm = bandit.select(FREE, random)
        if bandit.probability < 1.0:
            # Drawn with a share of the exploration, never greedy.
            assert arm != 2 or bandit.probability <= 1 / 3


def test_switching_on_costs_less_per_token_the_larger_k_is() -> None:
    means = [10.0, 11.0, 11.0]
    price = 0.02
    cost = np.array([0.0, price, price / 2])
    random = np.random.default_rng(2)
    bandit = known(means)
    greedy = set()
    for _ in range(4000):
        arm = bandit.select(cost, random)
        if bandit.probability < 1.0 and bandit.probability > 0.7:
            greedy.add(arm)
    # 1 / 10 < 1 / 11 + .01: off stays, though both others are better without the price.
    assert greedy == {0}


def test_the_price_counts_the_tokens_that_were_not_drafted_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = nightjar(switch_seconds=0.5, switch_seconds_per_token=0.001)
    engine = TinyEngine(policy, batch=4)
    seen = []
    original = BinGreedy.select

    def select(self: BinGreedy, cost: np.ndarray, random: np.random.Generator) -> int:
        seen.append(cost.copy())
        original(self, cost, random)
        return 0

    monkeypatch.setattr(BinGreedy, "select", select)
    engine.run(11)
    assert not seen[0].any()
    # Step 0 chose 0 and emitted one token each without drafting; so did all ten before this one.
    seconds = 0.5 + 0.001 * 10 * 4
    assert seen[10].tolist() == pytest.approx([0.0, *[seconds / k for k in (1, 2, 3, 4, 5)]])
    policy.forget(np.arange(4))
    assert policy._switch_cost(engine.context())[1] == pytest.approx(0.5)


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
    assert first.propensity.tolist() == pytest.approx([1 / 6] * 4)


def test_batch_sizes_past_the_last_context_share_it() -> None:
    policy = nightjar(max_contexts=2)
    engine = TinyEngine(policy)
    for batch in (1, 4, 50, 400):
        engine.batch = batch
        engine.run(20)
    assert policy.contexts.keys() == {0, 1}


@pytest.mark.parametrize(("cold", "mode"), [(True, Mode.OFF_COLD), (False, Mode.OFF_WARM)])
def test_at_k_0_the_drafter_is_left_out_only_if_asked_for(cold: bool, mode: Mode) -> None:
    engine = TinyEngine(nightjar(cold=cold), cold_off=True)
    modes = {plan.mode for plan in (engine.step() for _ in range(300))}
    assert modes == {Mode.ON, mode}
