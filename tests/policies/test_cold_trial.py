"""A policy finds out what a drafter takes whose passes run in every step, where that may matter."""

from __future__ import annotations

import pytest

from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.result import Result
from adaptive_spec.sim.scenario import Scenario, simulate


def block_drafter(
    policy: str, clients: int, acceptance: str, tokens: int, warmup: int, drafter: str = "block"
) -> Result:
    scenario = Scenario(
        load=f"closed:{clients}",
        acceptance=(acceptance,),
        drafter=drafter,
        hardware="a100-llama-8b",
        tokens=tokens * clients,
        warmup_tokens=warmup * clients,
    )
    return simulate(scenario, parse_policy(policy))


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", ["model:mixed", "model:steady-5"])
def test_a_block_drafter_of_a_hundred_requests_is_left_out(acceptance: str) -> None:
    ours, none = (
        block_drafter(name, 96, acceptance, 1200, 600).throughput_tok_s
        for name in ("goodput", "off")
    )
    assert ours >= 0.93 * none  # 0.46 and 0.48 where its pass was taken for free


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "acceptance", "least"), [(96, "model:steady-5", 0.95), (32, "model:mixed", 1.12)]
)
def test_a_look_up_is_left_out_where_it_loses(clients: int, acceptance: str, least: float) -> None:
    ours, none = (
        block_drafter(name, clients, acceptance, 1200, 600, "suffix") for name in ("goodput", "off")
    )
    assert ours.throughput_tok_s >= least * none.throughput_tok_s
    assert ours.mode_fraction["on"] > 0.0


def test_a_block_drafter_that_helps_a_few_requests_keeps_them() -> None:
    ours = block_drafter("goodput", 2, "model:steady-80", 2500, 0)
    assert ours.mode_fraction.get("off_cold", 0.0) == 0.0


@pytest.mark.slow
def test_speculation_goes_on_after_a_trial_that_it_has_passed() -> None:
    """Eight steps without the drafter, and then no request is left without the drafter for good."""
    ours = block_drafter("goodput", 4, "model:mixed", 4000, 0)
    none = block_drafter("off", 4, "model:mixed", 4000, 0)
    assert 0.0 < ours.mode_fraction["off_cold"] < 0.01
    assert ours.throughput_tok_s >= 1.2 * none.throughput_tok_s
