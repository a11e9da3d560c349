from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adaptive_spec.sim.hardware.registry import hardware_profile
from benchmarks.gpu.profile import ACCEPTANCE, COSTS, make_profile, split, with_facts


def step(ids: list[str], k: list[int]) -> dict[str, Any]:
    return {"ids": ids, "k": k}


def test_a_trace_is_split_into_uniform_steps_and_real_requests(tmp_path: Path) -> None:
    steps = [
        step(["shape-0-a", "shape-1-a"], [2, 2]),
        step(["shape-0-a", "shape-1-a"], [3, 1]),
        step(["json-0-a", "code-1-a"], [5, 5]),
        step(["json-0-a", "code-1-a"], [5, 4]),
    ]
    trace = tmp_path / "trace"
    trace.mkdir()
    lines = [json.dumps(each) for each in steps]
    (trace / "steps-1-000000.jsonl").write_text("\n".join([*lines, '{"ids": ["json']))
    assert split(trace, tmp_path / "parts") == {COSTS: 2, ACCEPTANCE: 2}

    def read(name: str) -> list[Any]:
        (path,) = (tmp_path / "parts" / name).glob("*.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    assert read(COSTS) == [steps[0], steps[2]]
    assert read(ACCEPTANCE) == steps[2:]


def test_what_no_trace_tells_comes_from_the_engine() -> None:
    engine = {"capture_sizes": [1, 8], "memory_gib": {"total": 80.0}}
    profile = with_facts(hardware_profile("h100-llama-8b"), "NVIDIA H100, 81559 MiB", engine)
    assert profile.memory_bytes == 80 * 2**30
    assert profile.token_buckets == [1, 8]
    assert profile.source.startswith("measured with vLLM on NVIDIA H100")


def test_without_traces_the_reason_is_given(tmp_path: Path) -> None:
    assert (
        "run the stage step_costs"
        in make_profile(tmp_path, tmp_path / "traces", "eagle-long")["error"]
    )
