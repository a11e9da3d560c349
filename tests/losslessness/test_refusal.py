"""Policies for greedy drafts only are refused where drafts are sampled."""

import msgspec
import pytest

from adaptive_spec import Capability, Config, Controller, Level, PolicyError
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policy import Policy, available_policies, policy_class, provenance_of
from tests.losslessness.exact.shipped import FOR_SAMPLED_DRAFTS, GREEDY_ONLY, shipped
from tests.refused import refused

GREEDY = Capability(level=Level.VERIFY, max_draft_tokens=4)
SAMPLED = msgspec.structs.replace(GREEDY, sampled_drafts=True)
PATHS = available_policies(baselines=True)
"""A server finds none of these rules by name; a dotted path reaches any rule at start-up."""


def test_some_policies_are_for_greedy_drafts_only() -> None:
    assert GREEDY_ONLY == ("tetris",)


@pytest.mark.parametrize("mode", ["on", "shadow"])
@pytest.mark.parametrize("name", GREEDY_ONLY)
def test_one_for_greedy_drafts_is_refused_at_start_up(name: str, mode: str) -> None:
    config = msgspec.convert({"policy": PATHS[name], "mode": mode, "kernel": "numpy"}, Config)
    with refused(PolicyError, match=f"{name}.* is for greedy drafts only"):
        Controller.from_config(config, SAMPLED)
    Controller.from_config(config, GREEDY)


@pytest.mark.parametrize("name", FOR_SAMPLED_DRAFTS)
def test_the_others_are_not(name: str) -> None:
    Controller(shipped(name), SAMPLED)


@pytest.mark.parametrize("name", GREEDY_ONLY)
def test_a_switch_to_one_is_refused_and_nothing_changes(name: str) -> None:
    config = Config(policy=PATHS[name])  # a running server takes a dotted path of its start only
    controller = Controller(shipped("static"), SAMPLED, config)
    policy = controller.policy
    with pytest.raises(PolicyError, match="greedy drafts only"):
        controller.switch(SwitchRequest(policy=PATHS[name]))
    assert controller.policy is policy
    assert controller.config is config
    Controller(shipped("static"), GREEDY, config).switch(SwitchRequest(policy=PATHS[name]))


@pytest.mark.parametrize("name", GREEDY_ONLY)
def test_a_server_finds_no_baseline_by_name(name: str) -> None:
    with pytest.raises(PolicyError, match=f"'{name}' is a baseline: it runs in the simulator"):
        Controller.from_config(Config(policy=name), GREEDY)


def test_an_instance_may_be_for_greedy_drafts_where_its_class_is_not() -> None:
    class RunsOthers(StaticPolicy):
        def __init__(self, member: type[Policy]) -> None:
            super().__init__(StaticOptions())
            self.provenance = provenance_of(member)

    Controller(RunsOthers(policy_class("goodput")), SAMPLED)
    with pytest.raises(PolicyError, match="greedy drafts only"):
        Controller(RunsOthers(policy_class("tetris", baselines=True)), SAMPLED)
