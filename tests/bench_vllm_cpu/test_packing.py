from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adaptive_spec.operation.trace import read_trace
from benchmarks.vllm_cpu.packing import pack, unpack


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two steps; one request is in both."""
    steps = [
        {"schema": 1, "step": 7, "now": 100.5, "seconds": 0.5, "ids": ["cmpl-json-31-aa"]},
        {
            "schema": 1,
            "step": 8,
            "now": 101.0,
            "seconds": None,
            "ids": ["cmpl-code-32-bb", "cmpl-json-31-aa"],
        },
    ]
    folder = tmp_path / "trace"
    folder.mkdir()
    lines = b"\n".join(map(msgspec.json.encode, steps)) + b"\n"
    (folder / "steps-99-000000.jsonl").write_bytes(lines)
    return folder


def test_a_packed_trace_is_the_same_trace_from_time_0_with_short_ids(
    trace: Path, tmp_path: Path
) -> None:
    pack(trace, tmp_path / "packed.jsonl.gz")
    unpack(tmp_path / "packed.jsonl.gz", tmp_path / "again")
    first, second = read_trace(tmp_path / "again")
    assert (first["now"], second["now"]) == (0.5, 1.0)
    assert (first["step"], first["seconds"], second["seconds"]) == (7, 0.5, None)
    assert first["ids"] == ["json-1"]
    assert second["ids"] == ["code-2", "json-1"]


def test_the_same_steps_make_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    pack(trace, tmp_path / "one.gz")
    pack(trace, tmp_path / "other.gz")
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "other.gz").read_bytes()
