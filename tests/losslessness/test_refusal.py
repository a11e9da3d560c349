"""Policies for greedy drafts only are refused where drafts are sampled."""

import msgspec
import pytest

from adaptive_spec import Capability, Config, Controller, Level, PolicyError
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policy import Policy, policy_class, provenance_of
from tests.losslessness.exact.rules import Tetris
from tests.losslessness.exact.shipped import NAMES, shipped
from tests.refused import refused

GREEDY = Capability(level=Level.VERIFY, max_draft_tokens=4)
SAMPLED = msgspec.structs.replace(GREEDY, sampled_drafts=True)
TETRIS = "tests.losslessness.exact.rules:Tetris"


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_one_for_greedy_drafts_is_refused_at_start_up(mode: str) -> None:
    config = msgspec.convert({"policy": TETRIS, "mode": mode}, Config)
    with refused(PolicyError, match="'tetris' is for greedy drafts only"):
        Controller.from_config(config, SAMPLED)
    Controller.from_config(config, GREEDY)


@pytest.mark.parametrize("name", NAMES)
def test_no_installed_policy_is(name: str) -> None:
    Controller(shipped(name), SAMPLED)


def test_a_switch_to_one_is_refused_and_nothing_changes() -> None:
    config = Config(policy=TETRIS)  # a running server takes a dotted path of its start only
    controller = Controller(shipped("static"), SAMPLED, config)
    policy = controller.policy
    with pytest.raises(PolicyError, match="greedy drafts only"):
        controller.switch(SwitchRequest(policy=TETRIS))
    assert controller.policy is policy
    assert controller.config is config
    Controller(shipped("static"), GREEDY, config).switch(SwitchRequest(policy=TETRIS))


def test_a_server_finds_no_baseline_by_name() -> None:
    with pytest.raises(PolicyError, match="'nightjar' is a baseline: it runs in the simulator"):
        Controller.from_config(Config(policy="nightjar"), GREEDY)


def test_an_instance_may_be_for_greedy_drafts_where_its_class_is_not() -> None:
    class RunsOthers(StaticPolicy):
        def __init__(self, member: type[Policy]) -> None:
            super().__init__(StaticOptions())
            self.provenance = provenance_of(member)

    Controller(RunsOthers(policy_class("goodput")), SAMPLED)
    with pytest.raises(PolicyError, match="greedy drafts only"):
        Controller(RunsOthers(Tetris), SAMPLED)
