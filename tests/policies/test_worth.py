"""Estimates of what is not run, against runs of just that on the same simulated server."""

import pytest

from adaptive_spec.policy import build_policy
from tests.sim.small_server import PlainDrafter, closed_load, independent, server


def test_estimates_meet_runs_of_no_speculation_and_of_the_engines_k():
    def throughput(policy: str, **options: int) -> float:
        data = independent(0.7, 5000, depth=4)
        engine = server(
            closed_load(4), policy, policy_options=options, data=data, max_draft_tokens=4
        )
        return engine.run(max_tokens=6000, warmup_steps=50).throughput_tok_s

    engine = server(
        closed_load(4), "goodput", data=independent(0.7, 5000, depth=4), max_draft_tokens=4
    )
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
