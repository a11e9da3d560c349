"""Engine processes without an engine: the protocol, and what a failure becomes."""

from pathlib import Path

import pytest

from benchmarks.judge.device import Work
from benchmarks.judge.gpu.bench import Bench, Results
from benchmarks.judge.gpu.engine import OTHER, Step, summary
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


def step(at: float, k: list[int], *, prefill: int = 0, graph: str = "FULL") -> Step:
    work = Work(
        requests=len(k),
        tokens=len(k) + sum(k),
        prefill=prefill,
        least_k=min(k, default=0),
        most_k=max(k, default=0),
    )
    return Step(at, work, graph)


@pytest.mark.parametrize(
    ("found", "k"),
    [
        (step(0.0, [2, 2, 2]), 2),
        (step(0.0, [0, 0, 0]), 0),
        (step(0.0, [2, 2, 1]), OTHER),
        (step(0.0, [2, 2], prefill=64), OTHER),
        (step(0.0, [], prefill=64), OTHER),
    ],
)
def test_a_step_has_a_k_if_all_requests_decoded_with_it(found: Step, k: int) -> None:
    assert found.k == k


def test_figures_are_of_the_steps_after_the_moment() -> None:
    kinds = [([5, 5], "PIECEWISE")] * 4 + [([1, 1], "FULL")] * 6 + [([0, 0], "NONE")]
    steps = [step(0.01 * place, k, graph=graph) for place, (k, graph) in enumerate(kinds)]
    found = summary(steps, since=0.04)
    assert found["steps"] == 7
    assert found["graphs_by_k"] == {0: {"NONE": 1}, 1: {"FULL": 6}}
    assert found["step_ms"] == [10.0, 10.0, 10.0]
    assert found["drafted"] == 12
    assert found["mean_k"] == pytest.approx(12 / 14, abs=1e-4)
