"""Gains are ratios within a cell, of what the sweep holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptive_spec.sim.acceptance.records import PREFIX, record_file
from adaptive_spec.sim.sweep.config import load_sweep_config
from benchmarks.confidence_gain import CONFIDENCE, HISTORY, gains, main, text
from tests.sim.report.fake_results import results

ROOT = Path(__file__).resolve().parents[2]


def swept():
    """Two seeds; K = 0, 1, 2 have 50, 80, 100, and foresight 200."""
    scores = {CONFIDENCE: {"closed:1": (110.0, 132.0)}, HISTORY: {"closed:1": (100.0, 110.0)}}
    return results(scores, {"closed:1": (50.0, 80.0, 100.0)}, foresight=200.0)


def test_gain_is_with_confidence_over_without_in_the_same_cell():
    [gain] = gains(swept())
    assert gain.seeds == 2
    assert gain.best_k == 2
    assert gain.added == pytest.approx(1.15)
    assert (gain.added_least, gain.added_most) == (1.1, 1.2)
    assert gain.history == pytest.approx(1.05)
    assert gain.confidence == pytest.approx(1.21)
    assert gain.foresight == pytest.approx(2.0)
    assert "+15.0% (+10.0% +20.0%)" in text([gain])


def test_a_folder_that_is_no_sweep_is_said_in_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert capsys.readouterr().err.count("\n") == 1


def test_the_sweep_names_records_that_come_with_the_package():
    config = load_sweep_config(ROOT / "benchmarks" / "confidence.yaml")
    for chosen in config.acceptance_sets().values():
        for name in chosen.files:
            assert name.startswith(PREFIX)
            record_file(name.removeprefix(PREFIX).partition(":")[0])
    assert {CONFIDENCE, HISTORY} == {entry.label for entry in config.policy_entries()}
