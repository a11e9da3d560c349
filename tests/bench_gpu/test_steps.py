from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu.steps import OTHER, Steps


def stats(running: int, k: list[int], *, prompts: int = 0, graph: str = "FULL") -> Any:
    """What vLLM reports of a step whose requests verified these K."""
    drafting = [each for each in k if each]
    tokens = sum(k) + len(k) + prompts
    return SimpleNamespace(
        num_running_reqs=running,
        spec_decoding_stats=SimpleNamespace(
            num_drafts=len(drafting),
            num_draft_tokens=sum(drafting),
            num_accepted_tokens=len(drafting),
        )
        if drafting
        else None,
        cudagraph_stats=SimpleNamespace(
            num_unpadded_tokens=tokens, runtime_mode=f"CUDAGraphMode.{graph}"
        )
        if graph
        else None,
    )


def recorded(*each: Any, step: float = 0.01) -> Steps:
    steps = Steps()
    for place, one in enumerate(each):
        steps.add(step * place, one)
    return steps


@pytest.mark.parametrize(
    ("step", "k"),
    [
        (stats(3, [2, 2, 2]), 2),
        (stats(2, [2, 2, 2]), 2),  # one of them ended in the step
        (stats(3, [0, 0, 0]), 0),
        (stats(3, [2, 2, 1]), OTHER),
        (stats(3, [2, 2], prompts=64), OTHER),
        (stats(3, [3, 3, 0]), OTHER),
        (stats(3, [1, 1, 1], graph=""), 1),
    ],
)
def test_a_step_has_a_k_if_all_requests_decoded_with_it(step: Any, k: int) -> None:
    assert recorded(step).uniform_k().tolist() == [k]


def test_figures_are_of_the_steps_after_the_moment() -> None:
    early = [stats(2, [5, 5], graph="PIECEWISE")] * 4
    late = [stats(2, [1, 1])] * 6 + [stats(2, [0, 0], graph="NONE")]
    found = recorded(*early, *late).summary(since=0.04)
    assert found["steps"] == 7
    assert found["graphs_by_k"] == {0: {"NONE": 1}, 1: {"FULL": 6}}
    assert found["step_ms"] == [10.0, 10.0, 10.0]
    assert found["step_ms_by_k"] == {1: [6, 10.0]}
    assert (found["drafted"], found["accepted"]) == (12, 12)
    assert found["mean_k"] == pytest.approx(12 / 14, abs=1e-4)
