"""What stands for the cell in a policy's text."""

from __future__ import annotations

import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.sim.sweep.cells import Cell, CellName, policy_texts
from adaptive_spec.sim.sweep.config import SweepConfig


def text_of(policy, folder):
    config = SweepConfig(
        policies=(policy,),
        acceptance={"gsm8k": "f"},
        drafters=("e",),
        hardware=("h",),
        loads=("l",),
    )
    name = CellName("gsm8k", "eagle", "h100-llama-8b", "default", "l", 0)
    scenario = Scenario(load="l", acceptance=("f",), drafter="eagle", hardware="h100-llama-8b")
    ((_, label, text),) = policy_texts(config, (Cell(name, scenario),), folder)
    assert label == policy
    return text


def test_names_of_the_cell_and_the_folder_are_put_in(tmp_path):
    text = text_of("goodput:profile=${folder}/${hardware}-${drafter}-${acceptance}.json", tmp_path)
    assert text == f"goodput:profile={tmp_path}/h100-llama-8b-eagle-gsm8k.json"


def test_a_variable_that_is_not_there_is_an_error_that_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"no variable \$\{card\}; there are \$\{folder\}"):
        text_of("a:b=${card}", tmp_path)
