"""goodput finds good K without being told costs or acceptance."""

from collections import deque
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import Level
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Phase, Scenario, simulate
from benchmarks.changes import GPUS
from benchmarks.policy_loop import run
from tests.sim.small_server import PlainDrafter, closed_load, independent, server


def goodput(**options: Any) -> Any:
    return build_policy("goodput", options, seed=1)


@pytest.mark.slow
def test_it_reaches_the_best_fixed_k_though_results_come_late() -> None:
    """Without a delay: `test_beliefs_at_work`."""
    policy, late = goodput(), deque()
    learn, world = policy.observe, GPUS["CPU"]
    policy.observe = lambda step: late.append(step) or (len(late) > 2 and learn(late.popleft()))
    assert run(policy, lambda _: world, lambda _: 8, 1200, 0).score(600, 1200) >= 0.97


@pytest.mark.slow
def test_a_dead_drafter_costs_little() -> None:
    """Half a per cent, after 1,000 steps."""
    reached = []
    for policy in ("goodput", "off"):
        drafter, data = PlainDrafter(off_pass=False), independent(0.05, 20_000)
        engine = server(closed_load(32, output=150), policy, data=data, drafter=drafter)
        result = engine.run(max_tokens=2500 * 32, warmup_steps=1000)
        assert result.fail_opens == 0
        reached.append(result.throughput_tok_s)
    assert reached[0] >= 0.995 * reached[1]


@pytest.mark.slow
def test_filler_in_place_of_drafts_that_are_not_found_is_paid_for() -> None:
    """A text that rarely repeats itself: here K = 1 loses a fifth, K = 6 six tenths."""
    setting = Scenario(
        load="closed:64",
        acceptance=("record:real_text_t0.7:chat",),
        drafter="ngram",
        hardware="a100-llama-8b",
        engine=EngineOptions(level=Level.UNIFORM, fills_up=True),
        tokens=10_000,
        warmup_tokens=10_000,
    )
    off, fixed, ours = (
        simulate(setting, parse_policy(name)).throughput_tok_s
        for name in ("off", "static:k=1", "goodput")
    )
    assert fixed < 0.92 * off
    assert ours > 0.985 * off


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, pytest.param(16, marks=pytest.mark.long)])
def test_acceptance_that_dies_turns_k_to_0_until_it_returns(concurrency: int) -> None:
    """vllm#52873: after position 32,768 no draft of any request was accepted, for hours."""
    policy = build_policy("goodput", {}, seed=1)
    alive, dead = (independent(hazard, 20_000).accepted.astype(np.int64) for hazard in (0.8, 0.0))
    engine = server(closed_load(concurrency, output=150), policy, data=independent(0.8, 20_000))
    assert engine.run(max_seconds=10.0).mode_fraction["on"] > 0.9
    engine.accepted._accepted = dead
    engine.run(max_seconds=20.0)
    later = engine.run(max_seconds=70.0)
    # Each return waits for requests that have drafts; it costs the drafter's pass.
    assert later.mode_fraction["off_cold"] > 0.85
    assert later.mean_k < 0.05, "probes are no longer rare"
    assert later.mean_k > 0.0, "nobody looks whether it is back"
    engine.accepted._accepted = alive
    engine.run(max_seconds=100.0)
    back = engine.run(max_seconds=105.0)
    assert back.mode_fraction["on"] > 0.9
    assert back.mean_k > 1.0


@pytest.mark.slow
def test_acceptance_that_rises_while_off_is_expected_of_those_that_come() -> None:
    """The few requests that a probe reads in have shown it; all others are new to the drafter."""
    setting = Scenario(
        load="closed:64",
        acceptance=("model:steady-10",),
        drafter="eagle",
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=6),
        phases=(Phase(at=15.0, files=("model:steady-80",)),),
        seconds=50.0,
        warmup_seconds=15.0,
    )
    reached, fixed = (
        simulate(setting, parse_policy(policy)).throughput_tok_s
        for policy in ("goodput", "static:k=4")
    )
    assert reached > 0.8 * fixed


@pytest.mark.slow
def test_near_break_even_knowing_each_request_gains() -> None:
    """K = 1 for all gains 4 % over K = 0; those whose last draft was accepted gain more."""
    setting = Scenario(
        load="closed:256",
        acceptance=("model:mixed",),
        drafter="eagle",
        hardware="h100-llama-8b",
        seed=1,
        tokens=600 * 256,
        warmup_tokens=600 * 256,
    )
    reached, uniform = (
        simulate(setting, parse_policy(policy)).throughput_tok_s
        for policy in ("goodput", "static:k=1")
    )
    assert reached >= 1.01 * uniform


# ----------------------------------------------------------------- confidence


def scenario(concurrency: int, auc: float | None = 0.85, **engine: Any) -> Scenario:
    return Scenario(
        load=f"closed:{concurrency}",
        acceptance=("model:mixed",),
        drafter="eagle",
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=6, **engine),
        seed=1,
        tokens=800 * concurrency + 2000,
        warmup_steps=300,
        confidence_auc=auc,
    )


def throughput(setting: Scenario, **options: Any) -> float:
    result = setting.run(build_policy("goodput", options, seed=1), "goodput")
    assert result.fail_opens == 0
    return result.throughput_tok_s


def history_only(setting: Scenario) -> float:
    return throughput(setting, confidence=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "gain"),
    # At level VERIFY all Kmax drafts are made in every step, whatever comes of them.
    [pytest.param({}, 1.01, marks=pytest.mark.long), ({"level": Level.VERIFY}, 1.01)],
)
def test_it_gains_by_trimming_what_was_drafted(options: dict[str, Any], gain: float) -> None:
    # Depths 1 and 2 are nearly alike here: which of them a run settles on differs by seed.
    settings = [msgspec.structs.replace(scenario(128, **options), seed=seed) for seed in range(2)]
    ratios = [throughput(setting) / history_only(setting) for setting in settings]
    assert np.mean(ratios) > gain
    assert min(ratios) > 0.99


@pytest.mark.slow
def test_a_signal_that_tells_nothing_costs_next_to_nothing() -> None:
    setting = scenario(16, auc=0.5)
    assert throughput(setting) > 0.985 * history_only(setting)
