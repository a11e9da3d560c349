from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fake_cells import CONDITION, cell

from benchmarks.vllm_cpu.cells import CellFile
from benchmarks.vllm_cpu.errors import BenchmarkError


def test_cells_are_read_back_after_a_restart(tmp_path: Path) -> None:
    file = CellFile(tmp_path / "cells.jsonl", CONDITION)
    file.add(cell("static2", 4, 1))

    again = CellFile(tmp_path / "cells.jsonl", CONDITION)

    assert again.cells == [cell("static2", 4, 1)]
    assert again.has("static2", 4, 1)
    assert not again.has("static2", 4, 0)


def test_a_line_cut_off_by_a_kill_is_dropped_and_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    file = CellFile(path, CONDITION)
    file.add(cell(repeat=0))
    file.add(cell(repeat=1))
    path.write_bytes(path.read_bytes()[:-20])

    again = CellFile(path, CONDITION)
    again.add(cell(repeat=2))

    repeats = [each.repeat for each in CellFile(path, CONDITION).cells]
    assert repeats == [0, 2]


def test_cells_of_another_condition_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    CellFile(path, CONDITION)
    with pytest.raises(BenchmarkError, match=r"cells\.jsonl:1: measured under other conditions"):
        CellFile(path, msgspec.structs.replace(CONDITION, draft="poor"))


def test_a_foreign_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    CellFile(path, CONDITION)
    path.write_bytes(path.read_bytes() + b"[1, 2]\n")
    with pytest.raises(BenchmarkError, match=r"cells\.jsonl:2: not a record"):
        CellFile(path, CONDITION)


def test_tokens_per_step_bounds_include_the_bonus_token() -> None:
    assert cell().tokens_per_step == 2.5
    assert cell().mean_k == 2.0
    assert cell().tokens_per_second == 50.0
