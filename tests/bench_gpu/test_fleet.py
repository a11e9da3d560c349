"""Engine processes without an engine: the protocol, and what a failure becomes."""

from pathlib import Path

import pytest

from benchmarks.judge.gpu.bench import Bench, Results
from benchmarks.judge.gpu.fleet import WORKER
from benchmarks.judge.gpu.setups import TINY, Options
from benchmarks.judge.processes import Process, ProcessError


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(tmp_path / "results.jsonl")
    options = Options(models=str(tmp_path / "no models"), scratch=str(tmp_path), **TINY)
    bench = Bench(options, results, 60.0)
    bench.use("none")
    assert list(bench.fleet.failed) == ["none"]
    assert "failed/engine/none" in results
    bench.cell("sweep", "none", bench.load(1, 0.8, 0), 0)
    assert bench.measure("x", "none", "control") is None
    assert [key for key in results.found if not key.startswith("failed/")] == []
    bench.use("none")  # is not tried again
    bench.fleet.close()
    assert "FAILED engine/none" in capsys.readouterr().out
