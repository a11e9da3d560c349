from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest
from fake_cells import CONDITION, cell

from benchmarks.vllm_cpu.cells import Cell, Condition
from benchmarks.vllm_cpu.errors import BenchmarkError
from benchmarks.vllm_cpu.summary import Mean, groups, over_one_table, ratios, read, text
from benchmarks.vllm_cpu_summary import main

ALONE = msgspec.structs.replace(CONDITION, workload="json")


def of(arm: str, load: int, rate: int, repeat: int = 0) -> Cell:
    return cell(arm, load, repeat, tokens=2 * rate, request_steps=100, accepted=500)


def saved(folder: Path, condition: Condition, cells: list[Cell]) -> None:
    content = {"condition": msgspec.to_builtins(condition), "cells": msgspec.to_builtins(cells)}
    (folder / f"vllm_cpu-{condition.name}.json").write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mixed = [of("none", 1, 100), of("static1", 1, 150), of("ours", 1, 180)]
    mixed += [of("none", 4, 100), of("static1", 4, 100), of("ours", 4, 120)]
    saved(tmp_path, CONDITION, mixed)
    saved(tmp_path, ALONE, [of("none", 1, 100), of("ours", 1, 400)])
    return tmp_path


def test_each_condition_and_load_counts_once(folder: Path) -> None:
    measured = read(folder.glob("*.json"))
    assert sorted(ratios(measured, "ours", "over_none")) == [1.2, 1.8, 4.0]
    assert sorted(ratios(measured, "ours", "over_best_static")) == [1.2, 1.2]


def test_conditions_are_grouped_and_all_loads_shown_apart(folder: Path) -> None:
    named = dict(groups(read(folder.glob("*.json"))))
    assert len(named["all conditions (2)"]) == 2
    alone, mixed = sorted(name for name in named if name.startswith("good draft"))
    assert "a kind alone" in alone
    assert "kinds mixed" in mixed
    assert ratios(named["all conditions, 4 clients"], "ours", "over_none") == [1.2]


def test_the_mean_is_geometric_with_its_standard_error() -> None:
    found = Mean.of([1.0, 1.21])
    assert found is not None
    assert found.value == pytest.approx(1.1)
    assert found.error == pytest.approx(math.log(1.21) / 2)
    assert str(Mean.of([1.5])) == "1.500"
    assert Mean.of([]) is None


def test_what_is_missing_is_left_out_of_the_text(folder: Path) -> None:
    shown = text(read(folder.glob("*.json")))
    assert "/ tuned" not in shown  # one repeat tunes nothing
    assert "schedule" not in shown
    assert "adaptive-spec" in shown


def test_the_command_prints_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 0
    assert "all conditions (2)" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "[]", '{"condition": 1}', "{"])
def test_a_folder_without_results_is_one_error(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "vllm_cpu-x.json").write_text(content)
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "vllm_cpu-x.json").write_bytes(b"\xff")
    with pytest.raises(BenchmarkError, match=r"vllm_cpu-x\.json"):
        read(tmp_path.glob("*.json"))


def test_one_k_is_chosen_for_all_workloads_of_a_load_together(tmp_path: Path) -> None:
    json_likes_6 = [of("static1", 1, 100), of("static6", 1, 300), of("ours", 1, 300)]
    mixed_hates_6 = [of("static1", 1, 100), of("static6", 1, 50), of("ours", 1, 110)]
    saved(tmp_path, ALONE, json_likes_6)
    saved(tmp_path, CONDITION, [*mixed_hates_6, of("static1", 4, 100), of("ours", 4, 500)])
    measured = read(tmp_path.glob("*.json"))
    assert sorted(over_one_table(measured, "ours")) == [pytest.approx(1.0), pytest.approx(2.2)]
    assert over_one_table(measured, "ours-cold") == []
    assert "/ one K 1.483" in text(measured)
