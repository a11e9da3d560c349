"""`adaptive-spec demo` finds the demo of a checkout, and says where it is otherwise."""

import pytest

from adaptive_spec.commands.demo import MODELS, SCRIPT, demo_script
from adaptive_spec.errors import AdaptiveSpecError


def test_finds_the_checkout_around_a_folder(tmp_path):
    for file in (SCRIPT, MODELS):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    inside = tmp_path / "docs"
    assert demo_script([inside, tmp_path]) == tmp_path / SCRIPT


def test_says_where_the_demo_is_if_this_is_no_checkout(tmp_path):
    with pytest.raises(AdaptiveSpecError, match="run this command in a clone"):
        demo_script([tmp_path])


def test_this_checkout_has_a_demo(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert demo_script().is_file()
