"""Groups: parts of the cross product, each with its own policies."""

from pathlib import Path

import pytest

from adaptive_spec.errors import ConfigError, PolicyError
from adaptive_spec.sim.sweep.cells import Files, plan_cells
from adaptive_spec.sim.sweep.config import load_sweep_config
from adaptive_spec.sim.sweep.run import plan_sweep

CONFIG = """
policies: [off, "static:k=1", "static:k=2", goodput]
policy_lists:
  fixed: [off, "static:k=1", "static:k=2"]
acceptance: {good: "model:good", poor: "model:poor"}
drafters: [eagle]
hardware: [h100-llama-8b]
loads: ["closed:1", "closed:4"]
seeds: 2
tokens: 100
engine: {max_draft_tokens: 2}
groups:
  everything good: {policies: [fixed], acceptance: [good]}
  ours: {policies: [goodput], loads: ["closed:4"], seeds: [1]}
"""

PHASES = "{files: ['model:good'], phases: [{at: 9, files: ['model:poor']}, {at: 3, files: [x]}]}"


def cells_of(tmp_path: Path, text: str = CONFIG):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return plan_cells(load_sweep_config(file), Files(tmp_path))


def test_the_cells_are_those_of_any_group(tmp_path):
    found = {(c.name.acceptance, c.name.load, c.name.seed) for c in cells_of(tmp_path)}
    good = {("good", load, seed) for load in ("closed:1", "closed:4") for seed in (0, 1)}
    assert found == good | {("poor", "closed:4", 1)}


def test_a_cell_of_several_groups_runs_the_policies_of_all_of_them(tmp_path):
    by_name = {(c.name.acceptance, c.name.load, c.name.seed): c for c in cells_of(tmp_path)}
    fixed = ("off", "static:k=1", "static:k=2")
    assert by_name["good", "closed:4", 1].policies == (*fixed, "goodput")
    assert by_name["good", "closed:4", 0].policies == fixed
    assert by_name["poor", "closed:4", 1].policies == ("goodput",)


def test_each_cell_runs_its_policies_and_the_oracles_once(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    plan = plan_sweep(file)
    assert len(plan.tasks) == sum(1 + len(cell.policies) for cell in plan.cells)
    assert len({task.key for task in plan.tasks}) == len(plan.tasks)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("policies: [fixed]", "policies: [fixd]", "everything good.*'fixd' is not among"),
        ("acceptance: [good]}", "acceptance: [god]}", "everything good.*'god' is not among"),
        ("seeds: [1]", "seeds: [7]", "ours.*7 is not among `seeds`"),
        ("fixed: [off, ", "fixed: [of, ", "policy_lists: fixed.*'of' is not among"),
        ('loads: ["closed:4"], seeds', 'load: ["closed:4"], seeds', "load.*keys are about"),
        ('"model:good"', PHASES, "`phases` must ascend"),
        ('"model:good"', "{files: [a], confidence: seen}", "confidence"),
        ("static:k=2", "static:k=3", "'static:k=3': K 3 exceeds Kmax 2"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, old, new, complaint):
    assert old in CONFIG
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.replace(old, new))
    with pytest.raises((ConfigError, PolicyError), match=complaint):
        plan_sweep(file)


def test_confidence_is_hidden_recorded_or_made(tmp_path):
    text = CONFIG.replace('"model:good"', "{files: ['model:good'], confidence: 0.85}")
    text = text.replace('"model:poor"', "{files: ['model:poor'], confidence: hidden}")
    found = {c.name.acceptance: c.scenario for c in cells_of(tmp_path, text)}
    assert found["good"].confidence_auc == 0.85
    assert found["good"].acceptance_data().confidence is not None
    assert found["poor"].hide_confidence
