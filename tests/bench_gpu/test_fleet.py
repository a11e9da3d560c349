"""Engine processes without an engine: the protocol, and what a failure becomes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from benchmarks.gpu.bench import Bench, Extent
from benchmarks.gpu.fleet import CPU_ENVIRONMENT, EngineError, EngineProcess, Fleet
from benchmarks.gpu.load import Load
from benchmarks.gpu.results import Results
from benchmarks.gpu.setups import Machine

EXTENT = Extent(
    method="eagle",
    loads=(1,),
    ks=(2,),
    repeats=1,
    temperatures=(0.8,),
    cell_seconds=0.1,
    output_tokens=8,
    answers=2,
    batches=(1,),
    contexts=(32,),
    prompts=(32,),
    steps=4,
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(models=str(tmp_path / "no models"), scratch=str(tmp_path), gpu=False)


@pytest.fixture
def process(tmp_path: Path) -> EngineProcess:
    return EngineProcess(tmp_path / "log", CPU_ENVIRONMENT)


def test_a_process_that_is_killed_is_an_error_each_time(process: EngineProcess) -> None:
    os.kill(process._process.pid, signal.SIGKILL)
    for _ in range(2):
        process.send({"do": "facts", "key": "none", "arguments": [], "named": {}})
        with pytest.raises(EngineError, match="ended with status -9"):
            process.receive(30.0)
    process.stop()


def test_a_process_that_hangs_is_ended(process: EngineProcess) -> None:
    began = time.monotonic()
    with pytest.raises(EngineError, match="no answer in 0 s"):
        process.receive(0.2)
    assert process._process.poll() is not None
    process.stop()
    assert time.monotonic() - began < 20


def test_an_engine_that_cannot_start_costs_its_own_cells_only(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = Fleet(machine, tmp_path / "logs")
    results = Results(tmp_path / "results.jsonl")
    bench = Bench(fleet, results, EXTENT, machine, time.monotonic() + 60)
    bench.use("none")
    assert list(fleet.failed) == ["none"]
    assert "failed/engine/none" in results
    load = Load(clients=1, temperature=0.8, seed=0, seconds=0.1)
    assert bench.cell("sweep", "none", load, 0) is None
    assert bench.measure("x", "none", "facts") is None
    assert [key for key in results.found if not key.startswith("failed/")] == []
    bench.use("none")  # is not tried again
    fleet.close()
    assert "FAILED engine/none" in capsys.readouterr().out
