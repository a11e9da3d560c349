"""Ranks as threads: all run the same K, whatever goes wrong on one of them."""

from typing import Any

import pytest
from harness.executor import KMAX
from harness.record import Record, check_labels
from simulated_ranks import run_ranks

RANDOM = "harness.random_policy:RandomPolicy"
OVERLAP = pytest.mark.parametrize("overlap", [pytest.param(False, marks=pytest.mark.long), True])


@OVERLAP
def test_tensor_parallel_ranks_run_what_rank_0_decides(started: Any, overlap: bool) -> None:
    trt = started(policy=RANDOM, options={"faults": 0.01})
    executors = run_ranks(trt, [1, 1, 1], overlap=overlap)
    histories = [executor.engine.history for executor in executors]
    assert histories[0] == histories[1] == histories[2]
    assert {k for _, k in histories[0]} == {1, 2, 3, 5}
    steps = [e._adaptive_spec.controller.status()["steps"] for e in executors]
    assert steps[0] > 500
    assert steps[1:] == [0, 0]
    assert sum("mode=on" in line for line in trt.lines) == 1


@OVERLAP
def test_attention_data_parallel_ranks_run_the_largest_proposal(
    started: Any, monkeypatch: pytest.MonkeyPatch, overlap: bool
) -> None:
    record = Record(monkeypatch.setattr)
    trt = started(policy=RANDOM, options={"faults": 0.01})
    executors = run_ranks(trt, [1, 2], attention_dp=True, overlap=overlap)
    ks = [[k for _, k, _ in executor.engine.log] for executor in executors]
    assert ks[0] == ks[1]
    assert set(ks[0]) == {1, 2, 3, 5}
    # The largest of two is large more often than one.
    assert ks[0].count(KMAX) > ks[0].count(1)
    # A rank without work decodes a dummy that goes by the name of 0.
    assert all("0" not in context.request_ids for context, _ in record.planned.values())
    # A rank whose own plan was smaller still labels what really ran.
    for executor in executors:
        assert check_labels(record.of(executor), executor.engine.truth) > 500


@pytest.mark.parametrize("attention_dp", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_hooks_fail_keeps_the_others_company(
    started: Any, monkeypatch: pytest.MonkeyPatch, attention_dp: bool, rank: int
) -> None:
    from adaptive_spec.adapters.tensorrt_llm.context import ContextBuilder

    own = ContextBuilder.build

    def build(self: Any, *args: Any) -> Any:
        if self._executor.dist.tp_rank == rank and self._executor.iter_counter > 100:
            raise ValueError("broken on purpose")
        return own(self, *args)

    monkeypatch.setattr(ContextBuilder, "build", build)
    seeds = [1, 2] if attention_dp else [1, 1]
    trt = started(policy="static", options={"k": 2})
    executors = run_ranks(trt, seeds, iterations=400, attention_dp=attention_dp)
    ks = [[k for _, k, _ in executor.engine.log] for executor in executors]
    assert ks[0] == ks[1]
    # Without a decision, a rank that has a say proposes the engine's own K.
    says = rank == 0 or attention_dp
    assert ks[0][-1] == (KMAX if says else 2)
