from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from fake_cells import CONDITION, cell

from benchmarks.vllm_cpu.arms import parse_arm
from benchmarks.vllm_cpu.cells import Cell, Condition
from benchmarks.vllm_cpu.collection import collect
from benchmarks.vllm_cpu.errors import BenchmarkError
from benchmarks.vllm_cpu.ratios import rows
from benchmarks.vllm_cpu.results import save
from benchmarks.vllm_cpu.summary import read, text
from benchmarks.vllm_cpu_summary import main

ARMS = [parse_arm(name) for name in ("none", "static1", "ours")]
ALONE = msgspec.structs.replace(CONDITION, workload="json")


def cells(ours: int) -> list[Cell]:
    return [
        cell(arm, load, repeat, tokens=2 * rate + 17 * repeat, request_steps=100, accepted=300)
        for repeat in (0, 1)
        for load in (1, 4)
        for arm, rate in (("none", 100), ("static1", 120), ("ours", ours))
    ]


def measured(folder: Path, condition: Condition, found: list[Cell]) -> Path:
    folder.mkdir(exist_ok=True)
    about = {"date": "today", "command": "python ...", "environment": {}}
    return save(folder, condition, rows(ARMS, [1, 4], found), found, about)


def test_a_collection_says_what_its_files_say(tmp_path: Path) -> None:
    paths = [measured(tmp_path, CONDITION, cells(150)), measured(tmp_path, ALONE, cells(90))]
    assert main([str(tmp_path), "--series", "a", "--collect", str(tmp_path / "all.json")]) == 0
    assert text(read([tmp_path / "all.json"], "a")) == text(read(paths))


def test_a_series_is_added_once_and_read_alone(tmp_path: Path) -> None:
    collection = tmp_path / "all.json"
    for series, condition, rate in (("a", CONDITION, 110), ("b", ALONE, 90), ("a", CONDITION, 150)):
        path = measured(tmp_path / series, condition, cells(rate))
        assert main([str(path), "--series", series, "--collect", str(collection)]) == 0
    assert [entry["series"] for entry in json.loads(collection.read_text())] == ["b", "a"]
    assert [each.condition for each in read([collection], "b")] == [ALONE]
    assert len(read([collection])) == 2


def test_cells_with_faults_are_not_collected(tmp_path: Path) -> None:
    broken = msgspec.structs.replace(cells(150)[-1], plugin={"fail_opens": {"plan raised": 3}})
    with pytest.raises(BenchmarkError, match="failed in a cell"):
        collect([measured(tmp_path, CONDITION, [*cells(150), broken])], "a")


def test_files_of_other_benchmarks_are_not_collected(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"cells": []}')
    with pytest.raises(BenchmarkError, match=r"no results of vllm_cpu\.py"):
        collect([tmp_path / "other.json"], "a")
