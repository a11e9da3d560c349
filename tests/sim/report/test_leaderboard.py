"""Policies are ranked on the cells that all of them have run."""

import pytest

from adaptive_spec.sim.report.leaderboard import by_load, settings
from tests.sim.report.fake_results import results

FIXED = {"closed:1": (50.0, 80.0, 100.0), "closed:8": (300.0, 500.0, 490.0)}
SCORES = {
    "goodput": {"closed:1": (100.0, 102.0), "closed:8": (490.0, 500.0)},
    "other": {"closed:1": (90.0, 90.0), "closed:8": (510.0, 510.0)},
}


def test_seeds_are_averaged_before_the_worst_cell_is_looked_for() -> None:
    *_, board = by_load(results(SCORES, FIXED, switches=5))
    ours, other = board.standings
    assert (board.cells, board.seeds, board.columns) == (2, 2, ("closed:1", "closed:8"))
    assert ours.policy == "goodput"
    assert ours.by_column == (pytest.approx(1.01), pytest.approx(0.99))
    assert ours.of_best_static == pytest.approx(1.0)
    assert ours.spread == pytest.approx(0.01)
    assert ours.worst is not None
    assert ours.worst[0] == pytest.approx(0.99)
    assert ours.worst[1] == ("one", "eagle", "h100-llama-8b", "default", "closed:8")
    assert ours.worst_of_no_speculation == pytest.approx(495 / 300)
    assert ours.switches == pytest.approx(50.0)
    assert other.of_best_static == pytest.approx((0.9 + 1.02) / 2)


def test_the_summary_of_a_sweep_is_by_load_then_of_all() -> None:
    found = by_load(results(SCORES, FIXED, acceptance=("one", "two")))
    names = [(each.name, each.cells) for each in found]
    assert names == [("closed:1", 2), ("closed:8", 2), ("all cells", 4)]
    # One load: the columns are the acceptance sets.
    assert found[0].columns == ("one", "two")


def test_a_setting_shows_means_and_the_best_fixed_k_of_each_load() -> None:
    (setting, rows), _ = settings(results(SCORES, FIXED, acceptance=("one", "two")))
    assert setting.columns == ("closed:1", "closed:8")
    assert setting.best_ks == ("2", "1")
    assert {row.kind for row in rows} == {"policy", "static"}
