"""Policies are ranked group by group, on the cells that all of them have run."""

import msgspec
import pytest

from adaptive_spec.sim.report.leaderboard import by_load, conditions
from adaptive_spec.sim.report.page import write_report
from adaptive_spec.sim.results.segments import Recovery
from adaptive_spec.sim.sweep.config import Group
from tests.sim.report.fake_results import results

FIXED = {"closed:1": (50.0, 80.0, 100.0), "closed:8": (300.0, 500.0, 490.0)}
SCORES = {
    "goodput": {"closed:1": (100.0, 102.0), "closed:8": (490.0, 500.0)},
    "other": {"closed:1": (90.0, 90.0), "closed:8": (510.0, 510.0)},
}


def grouped(**groups: Group):
    found = results(SCORES, FIXED, acceptance=("one", "two"))
    config = msgspec.structs.replace(found.config, groups=groups)
    return msgspec.structs.replace(found, config=config)


def with_recoveries(found, recoveries):
    """The results, with these recoveries in every row of a policy."""
    rows = [
        msgspec.structs.replace(
            row,
            result=msgspec.structs.replace(
                row.result,
                switches=5,
                regret=msgspec.structs.replace(row.result.regret, recoveries=recoveries),
            ),
        )
        for row in found.rows
    ]
    return msgspec.structs.replace(found, rows=tuple(rows))


def test_seeds_are_averaged_before_the_worst_cell_is_looked_for():
    (board,) = conditions(grouped(all=Group(acceptance=("one",))))
    ours, other = board.standings
    assert (board.cells, board.seeds, board.columns) == (2, 2, ("closed:1", "closed:8"))
    assert ours.policy == "goodput"
    assert ours.by_column == (pytest.approx(1.01), pytest.approx(0.99))
    assert ours.of_best_static == pytest.approx(1.0)
    assert ours.spread == pytest.approx(0.01)
    assert ours.worst[0] == pytest.approx(0.99)
    assert ours.worst[1] == ("one", "eagle", "h100-llama-8b", "default", "closed:8")
    assert ours.worst_of_no_speculation == pytest.approx(495 / 300)
    assert other.of_best_static == pytest.approx((0.9 + 1.02) / 2)


def test_a_group_holds_its_own_cells_and_policies_only():
    boards = conditions(
        grouped(
            a=Group(policies=("other",), loads=("closed:8",), seeds=(1,)),
            b=Group(policies=("goodput",), acceptance=("two",)),
        )
    )
    assert [board.name for board in boards] == ["a", "b"]
    a, b = boards
    assert [each.policy for each in a.standings] == ["other"]
    assert (a.cells, a.seeds) == (2, 1)
    # One load: the columns are the acceptance sets.
    assert a.columns == ("one", "two")
    assert [each.policy for each in b.standings] == ["goodput"]
    assert b.cells == 2


def test_without_groups_everything_is_one():
    (board,) = conditions(grouped())
    assert board.name == "all cells"
    assert board.cells == 4


def test_recoveries_are_medians_of_those_there_were():
    def recovery(steps):
        seconds = None if steps is None else steps / 100
        return Recovery(
            at=1.0,
            best_static_k=0,
            steps=steps,
            seconds=seconds,
            lost_seconds=2.0,
            of_best_static=1,
        )

    found = with_recoveries(grouped(), [recovery(10), recovery(30), recovery(None)])
    ours = conditions(found)[0].standings[0]
    assert (ours.recoveries.changes, ours.recoveries.recovered) == (24, 16)
    assert (ours.recoveries.steps, ours.recoveries.seconds) == (20, pytest.approx(0.2))
    assert ours.recoveries.lost_seconds == pytest.approx(2.0)
    assert ours.switches == pytest.approx(50.0)


def test_the_page_shows_every_group_and_ranks_on_the_first(tmp_path):
    found = grouped(
        core=Group(about="what counts", acceptance=("one",)),
        rest=Group(policies=("goodput",), acceptance=("two",)),
    )
    page = write_report(found, tmp_path).read_text()
    assert "core (2 cells, 2 seeds)" in page
    assert "what counts" in page
    assert "rest (2 cells, 2 seeds)" in page


def test_the_summary_of_a_sweep_is_by_load_then_of_all():
    assert [each.name for each in by_load(grouped())] == ["closed:1", "closed:8", "all cells"]


def test_the_summary_of_a_sweep_of_groups_is_by_group():
    found = by_load(grouped(a=Group(policies=("other",)), b=Group(acceptance=("two",))))
    assert [(each.name, each.cells) for each in found] == [("a", 4), ("b", 2)]
    assert [line.policy for line in found[1].standings] == ["goodput", "other"]
