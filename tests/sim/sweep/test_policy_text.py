"""What stands for the cell in a policy's text."""

from __future__ import annotations

import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.sweep.policy_text import cell_text

CELL = ("gsm8k", "eagle", "h100-llama-8b")


def test_names_of_the_cell_and_the_folder_are_put_in(tmp_path):
    policy = "goodput:profile=${folder}/${hardware}-${drafter}-${acceptance}.json"
    text = cell_text(policy, tmp_path, *CELL)
    assert text == f"goodput:profile={tmp_path}/h100-llama-8b-eagle-gsm8k.json"


def test_a_variable_that_is_not_there_is_an_error_that_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"no variable \$\{card\}; there are \$\{folder\}"):
        cell_text("a:b=${card}", tmp_path, *CELL)
