"""A recorded trace as steps of a policy; one that is damaged is refused in one line."""

import json
from pathlib import Path

import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.logged_steps import LoggedTrace
from adaptive_spec.step import Level
from tests.sim.small_server import RandomK, closed_load, server


def traced(folder: Path, steps: int) -> Path:
    """Record so many steps of eight requests."""
    load, trace = closed_load(8, output=40), str(folder)
    engine = server(load, RandomK(1), trace_directory=trace, max_draft_tokens=6, level=Level.VERIFY)
    engine.run(warmup_steps=steps, max_tokens=1)
    return folder


def changed(folder: Path, **columns: object) -> Path:
    """The trace with columns replaced in every step; None removes one."""
    [segment] = folder.iterdir()
    records = [json.loads(line) for line in segment.read_text().splitlines()]
    for line in records:
        for name, value in columns.items():
            line[name] = value
            if value is None:
                del line[name]
    segment.write_text("".join(json.dumps(line) + "\n" for line in records))
    return folder


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"available": None}, "`available`.*record it anew"),
        ({"capability": None}, "capability"),
        ({"k": [1]}, r"step \d+: .*1 k for"),
        ({"propensity": "high"}, "propensity"),
        ({"mode": "other"}, "mode"),
    ],
)
def test_a_damaged_trace(tmp_path: Path, columns: dict, message: str) -> None:
    trace = changed(traced(tmp_path, steps=5), **columns) if "capability" not in columns else None
    if trace is None:
        trace = traced(tmp_path, steps=5)
        [segment] = trace.iterdir()
        first, rest = segment.read_text().split("\n", 1)
        line = json.loads(first)
        del line["capability"]
        segment.write_text(json.dumps(line) + "\n" + rest)
    with pytest.raises(DataError, match=message):
        list(LoggedTrace(trace).steps())


def test_confidences_of_different_numbers_of_positions(tmp_path: Path) -> None:
    [segment] = traced(tmp_path, steps=5).iterdir()
    records = [json.loads(line) for line in segment.read_text().splitlines()]
    for line in records:
        line["confidence"] = [[0.5] * (1 + row % 2) for row in range(len(line["ids"]))]
    segment.write_text("".join(json.dumps(line) + "\n" for line in records))
    with pytest.raises(DataError, match=r"step \d+: rows of a draft signal differ in length"):
        list(LoggedTrace(tmp_path).steps())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory or file"):
        LoggedTrace(tmp_path / "none")
    with pytest.raises(DataError, match="without steps"):
        LoggedTrace(tmp_path)
