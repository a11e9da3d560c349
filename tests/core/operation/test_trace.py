"""Traces survive crashes, stay within their size and read back as written."""

import errno
import gzip
import logging
import os
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.config import Trace
from adaptive_spec.controller.plan_validation import engine_plan
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.errors import DataError
from adaptive_spec.operation.output_file import LockedFile
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.operation.status import Counters
from adaptive_spec.operation.trace import StepTrace
from adaptive_spec.step import StepContext, StepOutcome
from tests.core.controller.answers import context, outcome

LOG = logging.getLogger("test")


def write(directory: Path, steps: int, **config: Any) -> StepTrace:
    trace = StepTrace(Trace(directory=str(directory), **config), Counters(), LOG)
    for step in range(steps):
        write_step(trace, context(step), outcome(step))
    return trace


def write_step(trace: StepTrace, planned: StepContext, became: StepOutcome) -> None:
    plan = engine_plan(planned)
    trace.write(finished_step(planned, plan, became), plan)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    write(tmp_path, 40).close(0.0)
    records = list(read_trace(tmp_path))
    assert [record["step"] for record in records] == list(range(40))
    assert records[0]["ids"] == ["a", "b", "c"]
    assert records[0]["k"] == [3, 2, 0]
    assert records[0]["seconds"] == 0.01
    assert records[0]["predicted_seconds"] is None


def test_request_ids_may_be_written_as_digests(tmp_path: Path) -> None:
    """They tell requests of a process apart, and nothing else."""
    for folder in ("a", "b"):
        write(tmp_path / folder, 3, hash_ids=True).close(0.0)
    found = {folder: [row["ids"] for row in read_trace(tmp_path / folder)] for folder in "ab"}
    assert found["a"][0] == found["a"][1] == found["a"][2]
    assert len(set(found["a"][0])) == 3
    assert all(len(name) == 24 for name in found["a"][0])
    assert not set(found["a"][0]) & set(found["b"][0]), "another process has another key"
    assert not set(found["a"][0]) & {"a", "b", "c"}


def test_each_segment_names_the_task_labels_it_holds(tmp_path: Path) -> None:
    counters = Counters()
    trace = StepTrace(Trace(directory=str(tmp_path), segment_mb=0.01), counters, LOG)
    labels = msgspec.structs.replace(context(0), task=np.array([0, 1, -1]))
    counters.name_task(0, "code")
    for step in range(64):
        write_step(trace, msgspec.structs.replace(labels, step=step), outcome(step))
    trace.close(0.0)
    segments = sorted(tmp_path.iterdir())
    assert len(segments) > 1
    for segment in segments:
        named = [record["task_names"] for record in read_trace(segment) if "task_names" in record]
        assert named == [{"0": "code"}]


def test_what_drafts_showed_is_written_in_time_or_late(tmp_path: Path) -> None:
    shown = np.array([[0.9, 0.5, np.nan], [0.7, 0.2, 0.1], [0.4, np.nan, np.nan]])
    trace = StepTrace(Trace(directory=str(tmp_path)), Counters(), LOG)
    in_time = msgspec.structs.replace(context(0), confidence=shown, entropy=shown + 1)
    late = msgspec.structs.replace(outcome(1), confidence=shown, entropy=shown + 1)
    for planned, became in ((in_time, outcome(0)), (context(1), late)):
        write_step(trace, planned, became)
    trace.close(0.0)
    rows = [[0.9, 0.5, None], [0.7, 0.2, 0.1], [0.4, None, None]]
    first, second = read_trace(tmp_path)
    assert first["confidence"] == second["late_confidence"] == rows
    assert first["entropy"][1] == second["late_entropy"][1] == [1.7, 1.2, 1.1]
    assert "late_confidence" not in first
    assert "confidence" not in second


def test_a_cut_last_line_is_skipped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 5).close(0.0)
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    assert len(list(read_trace(tmp_path))) == 4
    assert f"{str(path)!r}, line 5: skipped" in caplog.text
    write(tmp_path, 5).close(0.0)  # a process with the same number appends nothing to it
    assert len(list(read_trace(tmp_path))) == 4 + 5


def test_the_number_of_segments_holds_over_restarts(tmp_path: Path) -> None:
    for _ in range(6):
        write(tmp_path, 5, max_segments=3).close(0.0)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_segment_that_is_being_written_is_never_deleted(tmp_path: Path) -> None:
    first = write(tmp_path, 40, max_segments=1)
    [written] = tmp_path.iterdir()
    write(tmp_path, 5, max_segments=1).close(0.0)
    assert written.exists()
    first.close(0.0)


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    folder = tmp_path / "trace"
    folder.mkdir()
    monkeypatch.setattr(time, "gmtime", lambda: time.struct_time((2026, 1, 2, 3, 4, 5, 0, 0, 0)))
    monkeypatch.setattr(socket, "gethostname", lambda: "pod-0.of a/set")
    name = f"steps-pod_0_of_a_set-20260102T030405Z-{os.getpid()}"
    (folder / f"{name}-000000.jsonl").symlink_to(target)
    write(folder, 5).close(0.0)
    assert target.read_text() == "kept"
    assert (folder / f"{name}-000001.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage",
    [b"{broken", b'{"a":' * 20_000, b'{"a": ' + b"9" * 6000 + b"}", b'{"a": "\xff"}'],
    ids=["cut", "deep", "digits", "bytes"],
)
def test_damage_elsewhere_is_an_error_with_file_and_line(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, 5).close(0.0)
    [path] = tmp_path.iterdir()
    lines = path.read_bytes().split(b"\n")
    lines[2] = damage
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"\.jsonl:3"):
        list(read_trace(tmp_path))


def test_a_trace_of_another_version_or_another_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "steps-1-000000.jsonl"
    path.write_text('{"schema": 99, "step": 0}\n')
    with pytest.raises(DataError, match=r"made by another version of adaptive-spec \(schema 99"):
        list(read_trace(path))

    def refused(*_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refused)  # root may read everything
    with pytest.raises(DataError, match="Permission denied; run as the user of the server"):
        list(read_trace(path))


def test_packed_segments_are_known_by_their_bytes(tmp_path: Path) -> None:
    write(tmp_path, 5).close(0.0)
    [path] = tmp_path.iterdir()
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(list(read_trace(tmp_path))) == 5
    path.write_bytes(b"PAR1" + bytes(99))
    with pytest.raises(DataError, match="a Parquet file; only text is read, plain, gzip or zstd"):
        list(read_trace(tmp_path))


def test_segments_are_rotated_and_bounded(tmp_path: Path) -> None:
    write(tmp_path, 300, segment_mb=0.005, max_segments=3).close(0.0)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) < 3 * 7000
    assert [record["step"] for record in read_trace(tmp_path)][-1] == 299


def test_a_disk_that_fails_and_comes_back_costs_only_the_steps_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counters = Counters()
    trace = StepTrace(Trace(directory=str(tmp_path)), counters, LOG)
    full = False

    write_whole = LockedFile.write

    def half_written(file: LockedFile, content: bytes) -> None:
        if full:
            write_whole(file, content[: len(content) - 40])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(file, content)

    monkeypatch.setattr(LockedFile, "write", half_written)
    with caplog.at_level(logging.WARNING):
        for step in range(400):
            full = 64 <= step < 200
            write_step(trace, context(step), outcome(step, now=0.1 * step))
        trace.close(40.0)
        steps = [record["step"] for record in read_trace(tmp_path)]
    assert set(range(64)) < set(steps)
    assert set(range(300, 400)) < set(steps)
    assert counters.output_failures["trace"] >= 2
    texts = [record.getMessage() for record in caplog.records]
    assert len([text for text in texts if "No space left" in text]) == 1
    assert len([text for text in texts if "works again" in text]) == 1


def test_a_status_file_is_refused_as_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    file.write_text('{"mode": "on"}\n')
    with pytest.raises(DataError, match=r"status\.json:1: no step record .*trace\.directory"):
        list(read_trace(file))
