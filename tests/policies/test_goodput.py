"""goodput finds good K without being told costs or acceptance."""

from typing import Any

import numpy as np
import pytest

from adaptive_spec import Level
from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Phase, Scenario, simulate
from tests.policies.closed_loop import GPU, LAPTOP, alike, mixed, run
from tests.sim.small_server import PlainDrafter, closed_load, independent, server


def goodput(**options: Any) -> Policy:
    return build_policy("goodput", options, seed=1)


def laptop(hazards: Any, concurrency: int, steps: int, **more: Any) -> dict[str, Any]:
    """A small machine that serves so many requests of six drafts."""
    setting = {"concurrency": concurrency, "machine": LAPTOP, "steps": steps}
    return setting | {"hazards": lambda random: hazards(random)[:6]} | more


def best_static(**setting: Any) -> float:
    return max(run(build_policy("static", {"k": k}), **setting).tokens_per_second for k in range(7))


@pytest.mark.slow
@pytest.mark.parametrize("delay", [1, 2])
def test_it_reaches_the_best_fixed_k_though_results_come_late(delay: int) -> None:
    """Without a delay: `test_beliefs_at_work`."""
    setting = laptop(alike(0.7), 8, 1500, delay=delay)
    reached = run(goodput(), warmup=800, **setting)
    assert reached.tokens_per_second >= 0.97 * best_static(**setting)


@pytest.mark.parametrize("machine", [LAPTOP, GPU], ids=["laptop", "gpu"])
@pytest.mark.parametrize("level", list(Level))
def test_cold_start_loses_little(machine: Any, level: Level) -> None:
    setting = laptop(alike(0.6), 16, 500, machine=machine, level=level)
    assert run(goodput(), **setting).tokens_per_second >= 0.93 * best_static(**setting)


@pytest.mark.slow
def test_mixed_requests_in_one_batch_beat_every_fixed_k() -> None:
    setting = laptop(mixed, 16, 2000)
    reached = run(goodput(), warmup=800, **setting)
    assert reached.tokens_per_second >= 1.01 * best_static(**setting)


def run_of_goodput_modes(policy: str, concurrency: int, hazard: float, *, state: bool) -> float:
    """Tokens per second after 1,000 steps."""
    engine = server(
        closed_load(concurrency, output=150),
        policy,
        data=independent(hazard, 20_000),
        drafter=PlainDrafter(off_pass=state, stale=state),
    )
    result = engine.run(max_tokens=2500 * concurrency, warmup_steps=1000)
    assert result.fail_opens == 0
    return result.throughput_tok_s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("concurrency", "state"),
    [
        pytest.param(1, False, marks=pytest.mark.long),
        pytest.param(4, True, marks=pytest.mark.long),
        (32, False),
    ],
    ids=["1", "4, stale", "32"],
)
def test_a_dead_drafter_costs_little(concurrency: int, state: bool) -> None:
    """Half a per cent; 1.6 % where each return waits for requests that have a drafter's state."""
    off = run_of_goodput_modes("off", concurrency, 0.05, state=state)
    assert (
        run_of_goodput_modes("goodput", concurrency, 0.05, state=state)
        >= (0.98 if state else 0.995) * off
    )


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
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_acceptance_that_rises_while_off_is_expected_of_those_that_come(seed: int) -> None:
    """The few requests that a probe reads in have shown it; all others are new to the drafter."""
    setting = Scenario(
        load="closed:64",
        acceptance=("model:steady-10",),
        drafter="eagle",
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=6),
        phases=(Phase(at=15.0, files=("model:steady-80",)),),
        seed=seed,
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


def test_estimates_meet_runs_of_no_speculation_and_of_the_engines_k():
    data = independent(0.7, 10_000, depth=4, records=50)

    def throughput(policy: str) -> float:
        engine = server(closed_load(4), policy, data=data, max_draft_tokens=4)
        return engine.run(max_tokens=6000, warmup_steps=50).throughput_tok_s

    engine = server(closed_load(4), data=data, max_draft_tokens=4)
    measured = engine.run(max_tokens=12000, warmup_steps=200).throughput_tok_s
    said = engine.controller.status()["estimates"]
    assert said["no_speculation"] == pytest.approx(throughput("off"), rel=0.06)
    assert said["engine_k"] == pytest.approx(throughput("static"), rel=0.05)
    assert said["planned"] == pytest.approx(measured, rel=0.05)


@pytest.mark.slow
def test_while_off_the_plan_is_worth_no_speculation():
    engine = server(
        closed_load(4),
        "goodput",
        data=independent(0.05, 5000, depth=4),
        drafter=PlainDrafter(pass_=10e-3),
        counts=True,
        max_draft_tokens=4,
    )
    engine.run(max_tokens=12000)
    status = engine.controller.status()
    assert status["last_mode"] == "off_cold"
    said = status["estimates"]
    assert said["planned"] == pytest.approx(said["no_speculation"], rel=0.02)


def test_there_are_no_estimates_before_a_step_was_planned():
    assert build_policy("goodput").estimates() == {}
    assert server(closed_load(1), "static").controller.status()["estimates"] == {}
