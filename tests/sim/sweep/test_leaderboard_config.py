"""The leaderboard's configuration fits what it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptive_spec.sim.sweep.cells import Files, plan_cells, policy_texts
from adaptive_spec.sim.sweep.config import load_sweep_config
from adaptive_spec.sim.sweep.policy_text import PolicyTexts

FILE = Path(__file__).resolve().parents[3] / "benchmarks" / "leaderboard.yaml"


@pytest.fixture(scope="module")
def config():
    return load_sweep_config(FILE)


@pytest.fixture(scope="module")
def cells(config, data):
    before = pytest.MonkeyPatch()
    before.setenv("ADAPTIVE_SPEC_DATA", str(data))
    yield plan_cells(config, Files(FILE.parent))
    before.undo()


def test_every_policy_takes_part_somewhere(config):
    used = {label for group in config.groups.values() for label in config.policies_of(group)}
    assert used == {entry.label for entry in config.policy_entries()}


def test_every_cell_has_what_its_policies_name(config, cells):
    texts = set(policy_texts(config, cells, PolicyTexts(FILE, config.tuned)))
    profiles = {text.partition("profile=")[2] for text in texts if "profile=" in text}
    assert profiles
    assert not [name for name in profiles if not Path(name).is_file()]
    assert not [text for text in texts if "${" in text]


def test_every_load_and_acceptance_set_is_run(config, cells):
    assert {cell.name.acceptance for cell in cells} == set(config.acceptance)
    assert {cell.name.load for cell in cells} == {each.label for each in config.load_entries()}
