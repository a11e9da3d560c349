import pytest

from benchmarks.judge.device import Work
from benchmarks.judge.gpu.engine import OTHER, Step, summary


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
