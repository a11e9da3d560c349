"""Learned state outlives an executor: its next start and other replicas begin with it."""

import json
from pathlib import Path
from typing import Any

import pytest
from harness.executor import one_engine_executor, run
from harness.traffic import Traffic
from simulated_ranks import run_ranks


def serve(trt: Any, *, seed: int) -> Any:
    """Run an executor to its shutdown."""
    return run(one_engine_executor(trt, Traffic(trt, seed, iterations=600, rate=0.15)))


def steps_known_at_the_start(executor: Any) -> int:
    """Return the timed steps that the policy began with, beside its own."""
    controller = executor._adaptive_spec.controller
    return controller.policy.state()["step_times"]["steps"] - controller.status()["steps"]


@pytest.mark.parametrize("key", ["state", "state_directory"])
def test_the_next_start_goes_on_from_what_was_learned(
    started: Any, tmp_path: Path, key: str
) -> None:
    trt = started(**{key: str(tmp_path)})
    first = serve(trt, seed=1)
    [file] = tmp_path.glob("*.json")
    identity = json.loads(file.read_text())["identity"]
    assert identity["engine"].startswith("tensorrt_llm ")
    assert (identity["model"], identity["drafter"]) == ("target", "none")
    second = serve(trt, seed=2)
    assert steps_known_at_the_start(first) < 1 < 300 < steps_known_at_the_start(second)
    says = {"state": "starts from 1 objects", "state_directory": "resumes from"}
    assert sum(says[key] in line for line in trt.lines) == 1
    assert len(list(tmp_path.glob("*.json"))) == (2 if key == "state" else 1)


def test_of_ranks_that_decide_together_one_keeps_what_it_learns(
    started: Any, tmp_path: Path
) -> None:
    trt = started(state=str(tmp_path))
    for executor in run_ranks(trt, [1, 1, 1], iterations=1000):
        executor.shutdown()
    assert len(list(tmp_path.glob("*.json"))) == 1
    assert not any("not used with this engine" in line for line in trt.lines)
