"""Traces survive crashes, stay within their size and read back as written."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adaptive_spec.config import Trace
from adaptive_spec.controller.controller import engine_plan
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.operation.trace import StepTrace, read_trace
from adaptive_spec.step import StepContext, StepOutcome
from tests.core.controller.test_controller import context, outcome

LOG = logging.getLogger("test")


def write(directory: Path, steps: int, **config: float) -> StepTrace:
    trace = StepTrace.from_config(Trace(directory=str(directory), **config), LOG)
    for step in range(steps):
        write_step(trace, context(step), outcome(step))
    return trace


def write_step(trace: StepTrace, planned: StepContext, became: StepOutcome) -> None:
    plan = engine_plan(planned)
    trace.write(finished_step(planned, plan, became), plan)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    write(tmp_path, 40).close()
    records = list(read_trace(tmp_path))
    assert [record["step"] for record in records] == list(range(40))
    assert records[0]["ids"] == ["a", "b", "c"]
    assert records[0]["k"] == [3, 2, 0]
    assert records[0]["seconds"] == 0.01
    assert records[0]["predicted_seconds"] is None


def test_what_drafts_showed_is_written_in_time_or_late(tmp_path: Path) -> None:
    shown = np.array([[0.9, 0.5, np.nan], [0.7, 0.2, 0.1], [0.4, np.nan, np.nan]])
    trace = StepTrace.from_config(Trace(directory=str(tmp_path)), LOG)
    in_time = msgspec.structs.replace(context(0), confidence=shown, entropy=shown + 1)
    late = msgspec.structs.replace(outcome(1), confidence=shown, entropy=shown + 1)
    for planned, became in ((in_time, outcome(0)), (context(1), late)):
        write_step(trace, planned, became)
    trace.close()
    rows = [[0.9, 0.5, None], [0.7, 0.2, 0.1], [0.4, None, None]]
    first, second = read_trace(tmp_path)
    assert first["confidence"] == second["late_confidence"] == rows
    assert first["entropy"][1] == second["late_entropy"][1] == [1.7, 1.2, 1.1]
    assert "late_confidence" not in first
    assert "confidence" not in second


def test_a_torn_last_line_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, 5).close()
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    assert len(list(read_trace(tmp_path))) == 4


def test_damage_elsewhere_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    write(tmp_path, 5).close()
    [path] = tmp_path.iterdir()
    lines = path.read_bytes().split(b"\n")
    lines[2] = b"{broken"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"\.jsonl:3"):
        list(read_trace(tmp_path))


def test_segments_are_rotated_and_bounded(tmp_path: Path) -> None:
    write(tmp_path, 300, segment_mb=0.005, max_segments=3).close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) < 3 * 7000
    assert [record["step"] for record in read_trace(tmp_path)][-1] == 299


def test_a_directory_that_vanishes_turns_the_trace_off_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "trace"
    trace = StepTrace.from_config(Trace(directory=str(directory)), LOG)
    directory.rmdir()
    with caplog.at_level(logging.WARNING):
        for step in range(3):
            write_step(trace, context(step), outcome(step))
    assert len([r for r in caplog.records if "trace disabled" in r.getMessage()]) == 1


def test_a_directory_that_cannot_be_made_is_said_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"trace\.directory"):
        StepTrace.from_config(Trace(directory=str(tmp_path / "file" / "x")), LOG)
