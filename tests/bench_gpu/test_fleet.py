"""Engine processes without an engine: the protocol, and what a failure becomes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.judge.gpu.bench import Bench, Extent, Results
from benchmarks.judge.gpu.fleet import WORKER, Fleet
from benchmarks.judge.gpu.setups import Machine
from benchmarks.judge.processes import Process, ProcessError

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
def process(tmp_path: Path) -> Process:
    return Process(WORKER, tmp_path / "log", {})


def test_a_process_that_is_killed_is_an_error_each_time(process: Process) -> None:
    process.process.kill()
    for _ in range(2):
        with pytest.raises(ProcessError, match="ended with status -9"):
            process.ask({})
    process.close()


def test_a_process_that_hangs_is_ended(process: Process) -> None:
    with pytest.raises(ProcessError, match="ended with status -9"):
        process.receive(0.2)
    process.close()


def test_an_engine_that_cannot_start_costs_its_own_cells_only(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = Fleet(machine, tmp_path / "logs")
    results = Results(tmp_path / "results.jsonl")
    bench = Bench(fleet, results, EXTENT, machine, time.monotonic() + 60)
    bench.use("none")
    assert list(fleet.failed) == ["none"]
    assert "failed/engine/none" in results
    bench.cell("sweep", "none", bench.load(1, 0.8, 0), 0)
    assert bench.measure("x", "none", "control") is None
    assert [key for key in results.found if not key.startswith("failed/")] == []
    bench.use("none")  # is not tried again
    fleet.close()
    assert "FAILED engine/none" in capsys.readouterr().out
