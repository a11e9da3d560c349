"""What stands for the cell in a policy's text."""

from __future__ import annotations

import json

import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.sweep.policy_text import PolicyTexts

CELL = ("gsm8k", "eagle", "h100-llama-8b")


@pytest.fixture
def texts(tmp_path):
    tuned = {
        "table": {
            "gsm8k / eagle / h100-llama-8b": [[1, 8, 3]],
            "* / eagle / l40s-llama-8b": [[1, 8, 2]],
        },
        "gate": {"* / * / *": "window=10,threshold=0.4"},
    }
    (tmp_path / "tuned.json").write_text(json.dumps(tuned))
    return PolicyTexts(tmp_path / "sweep.yaml", "tuned.json")


def test_names_of_the_cell_and_the_folder_are_put_in(texts, tmp_path):
    text = texts.text("goodput:profile=${folder}/${hardware}-${drafter}-${acceptance}.json", *CELL)
    assert text == f"goodput:profile={tmp_path}/h100-llama-8b-eagle-gsm8k.json"


def test_a_tuned_value_is_that_of_the_cell(texts):
    assert texts.text("batch_table:table=${tuned:table}", *CELL) == "batch_table:table=[[1,8,3]]"
    other = texts.text("batch_table:table=${tuned:table}", "any", "eagle", "l40s-llama-8b")
    assert other == "batch_table:table=[[1,8,2]]"


def test_a_tuned_text_is_put_in_as_it_is(texts):
    assert texts.text("gate:${tuned:gate}", *CELL) == "gate:window=10,threshold=0.4"


@pytest.mark.parametrize(
    ("text", "place", "complaint"),
    [
        ("a:b=${tuned:tables}", CELL, "no tuned value 'tables' in .*tuned.json"),
        ("a:b=${tuned:table}", ("x", "eagle", "h100-llama-8b"), "no value for x / eagle"),
        ("a:b=${card}", CELL, r"no variable \$\{card\}; there are \$\{folder\}"),
    ],
)
def test_what_is_not_there_is_an_error_that_says_so(texts, text, place, complaint):
    with pytest.raises(ConfigError, match=complaint):
        texts.text(text, *place)


def test_a_tuned_value_without_a_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="names no file `tuned`"):
        PolicyTexts(tmp_path / "sweep.yaml", None).text("a:b=${tuned:c}", *CELL)


@pytest.mark.parametrize("content", [None, "{", '["a"]'])
def test_a_damaged_file_is_an_error(tmp_path, content):
    if content is not None:
        (tmp_path / "tuned.json").write_text(content)
    with pytest.raises(ConfigError, match="tuned"):
        PolicyTexts(tmp_path / "sweep.yaml", "tuned.json")
