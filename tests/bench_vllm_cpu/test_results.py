from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from fake_cells import CONDITION, cell

from benchmarks.vllm_cpu.arms import parse_arm
from benchmarks.vllm_cpu.cells import Cell
from benchmarks.vllm_cpu.ratios import means, noise, rows, tuned_static
from benchmarks.vllm_cpu.results import save, text

ARMS = [parse_arm(name) for name in ("none", "static2", "static6", "ours")]


def measured(arm: str, repeat: int, rate: float, accepted: int = 0) -> Cell:
    """100 request steps at this rate."""
    return cell(arm, 4, repeat, tokens=round(rate * 2), request_steps=100, accepted=accepted)


CELLS = [
    measured("none", 0, 100),
    measured("none", 1, 110),
    measured("static2", 0, 150, accepted=120),
    measured("static2", 1, 154, accepted=120),
    measured("static6", 0, 140, accepted=250),
    measured("static6", 1, 143, accepted=250),
    measured("ours", 0, 165, accepted=200),
    measured("ours", 1, 154, accepted=200),
]


def test_ratios_are_paired_by_repeat() -> None:
    table = {row.arm.name: row for row in rows(ARMS, [4], CELLS)}
    ours = table["ours"]
    assert ours.over_none is not None
    assert ours.over_best_static is not None
    assert (ours.over_none.low, ours.over_none.high) == (1.4, 1.65)
    assert (ours.over_best_static.low, ours.over_best_static.high) == (1.0, 1.1)


def test_a_speed_up_above_accepted_plus_one_is_left_out_and_counted() -> None:
    impossible = measured("static6", 2, 201, accepted=100)
    cells = [*CELLS, measured("none", 2, 100), impossible]
    row = next(row for row in rows(ARMS, [4], cells) if row.arm.name == "static6")
    assert row.rejected == (2,)
    assert row.tokens_per_second is not None
    assert row.tokens_per_second.count == 2
    shown = text(CONDITION, rows(ARMS, [4], cells), cells)
    assert "left out, speed-up above accepted + 1: 1 cells" in shown


def test_a_speed_up_of_exactly_accepted_plus_one_stays() -> None:
    cells = [*CELLS, measured("none", 2, 100), measured("static6", 2, 200, accepted=100)]
    row = next(row for row in rows(ARMS, [4], cells) if row.arm.name == "static6")
    assert row.rejected == ()


def test_an_arm_that_does_not_speculate_may_be_a_little_faster_than_no_speculation() -> None:
    idle = msgspec.structs.replace(measured("static6", 2, 103, accepted=0), drafted=0)
    cells = [*CELLS, measured("none", 2, 100), idle]
    row = next(row for row in rows(ARMS, [4], cells) if row.arm.name == "static6")
    assert row.rejected == ()


def test_a_static_k_is_tuned_on_the_other_repeats_than_it_is_held_against() -> None:
    rates = {"static1": [100, 100, 160], "static2": [120, 90, 110], "static3": [90, 90, 90]}
    of = {
        name: {repeat: measured(name, repeat, rate) for repeat, rate in enumerate(row)}
        for name, row in rates.items()
    }
    found = tuned_static(of)
    assert {repeat: cell.arm for repeat, cell in found.items()} == {
        0: "static1",  # 130 against 100
        1: "static1",  # 130 against 115
        2: "static2",  # 105 against 100
    }
    assert [round(cell.tokens_per_second) for cell in found.values()] == [100, 100, 110]


def test_one_repeat_tunes_nothing() -> None:
    assert tuned_static({"static1": {0: CELLS[2]}}) == {}
    once = [each for each in CELLS if each.repeat == 0]
    assert all(row.over_tuned_static is None for row in rows(ARMS, [4], once))


def test_means_are_over_all_loads_and_missing_where_a_load_has_no_ratio() -> None:
    other = [msgspec.structs.replace(each, concurrency=1) for each in CELLS if each.arm != "none"]
    assert means(rows(ARMS, [4], CELLS))["ours"]["over_none"] == pytest.approx(1.525)
    assert "over_none" not in means(rows(ARMS, [1, 4], [*CELLS, *other]))["ours"]


def test_cells_that_others_disturbed_are_counted() -> None:
    disturbed = msgspec.structs.replace(CELLS[0], others_cpu=0.9)
    shown = text(CONDITION, rows(ARMS, [4], CELLS), [disturbed, *CELLS[1:]])
    assert "disturbed by other processes, kept: 1 of 8 cells" in shown


@pytest.mark.parametrize(("others", "disturbed"), [(1.1, 0), (1.3, 1)])
def test_what_was_expected_of_others_disturbs_no_cell(others: float, disturbed: int) -> None:
    beside = msgspec.structs.replace(CELLS[0], others_cpu=others, beside=1.0)
    shown = text(CONDITION, rows(ARMS, [4], CELLS), [beside, *CELLS[1:]])
    assert f"disturbed by other processes, kept: {disturbed} of 8 cells" in shown
    assert "measured while other processes used about 1 cores throughout" in shown


def test_faults_of_the_plugin_are_said() -> None:
    broken = msgspec.structs.replace(CELLS[-1], plugin={"fail_opens": {"plan raised": 3}})
    assert "adaptive-spec failed" not in text(CONDITION, rows(ARMS, [4], CELLS), CELLS)
    shown = text(CONDITION, rows(ARMS, [4], CELLS), [*CELLS, broken])
    assert "vLLM's own K was used: {'plan raised': 3}" in shown


def test_noise_needs_repeats() -> None:
    assert noise(rows(ARMS, [4], [each for each in CELLS if each.repeat == 0])) is None
    assert noise(rows(ARMS, [4], CELLS)) == pytest.approx((4 / 152 + 11 / 159.5) / 2)


def test_results_are_saved_as_json(tmp_path: Path) -> None:
    table = rows(ARMS, [4], CELLS)
    path = save(tmp_path, CONDITION, table, CELLS, {"date": "today"})
    saved = json.loads(path.read_text())
    assert list(tmp_path.iterdir()) == [path]
    assert saved["date"] == "today"
    assert saved["table"][3]["arm"] == "ours"
    assert msgspec.convert(saved["cells"], list[Cell]) == CELLS
