"""Mistakes put into the adapter on purpose: the harness and the checks find each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import managers, violations
from harness.executor import one_engine_executor, run
from harness.record import Record, check_labels
from harness.traffic import Traffic
from simulated_ranks import run_ranks

from adaptive_spec.adapters.tensorrt_llm import capability, context, ladder, rules, steps
from adaptive_spec.adapters.tensorrt_llm.agreement import Agreement
from adaptive_spec.adapters.tensorrt_llm.context import ContextBuilder, is_real
from adaptive_spec.engines.driver import PendingSteps

RANDOM = "harness.random_policy:RandomPolicy"


def random_run(trt: Any, *, iterations: int = 500, **options: Any) -> Any:
    traffic = Traffic(trt, 3, iterations=iterations, rate=0.15)
    return run(one_engine_executor(trt, traffic, **options))


@pytest.mark.parametrize("overlap", [False, True])
def test_filler_counted_as_rejected_drafts(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch, overlap: bool
) -> None:
    def record_drafts(self: Any, slots: Any, prefilled: Any, k: int) -> None:
        self._drafted[np.arange(1000)] = 5

    record = Record(monkeypatch.setattr)
    switched_on(policy=RANDOM)
    monkeypatch.setattr(ContextBuilder, "record_drafts", record_drafts)
    executor = random_run(import_stand_in(), overlap=overlap)
    with pytest.raises(AssertionError, match="filler counted"):
        check_labels(record, executor.engine.truth)


def test_lengths_of_upstreams_lists_taken_for_drafts_at_hand(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the overlap scheduler they are an iteration behind."""

    def build(self: Any, step: int, now: float, batch: Any, *args: Any) -> Any:
        for request in filter(is_real, batch.generation_requests):
            self._drafted[np.array([self.slot_of(request)])] = len(request.py_draft_tokens)
        return own(self, step, now, batch, *args)

    own = ContextBuilder.build
    record = Record(monkeypatch.setattr)
    switched_on(policy=RANDOM)
    monkeypatch.setattr(ContextBuilder, "build", build)
    executor = random_run(import_stand_in())
    with pytest.raises(AssertionError, match="filler counted"):
        check_labels(record, executor.engine.truth)


def test_a_late_prompt_result_taken_for_the_first_verification(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pop_matching(self: Any, matches: Any) -> Any:
        return self.pop() if self else None

    record = Record(monkeypatch.setattr)
    switched_on(policy=RANDOM)
    monkeypatch.setattr(PendingSteps, "pop_matching", pop_matching)
    executor = random_run(import_stand_in())
    with pytest.raises(AssertionError, match="accepted, really"):
        check_labels(record, executor.engine.truth)


def test_k_of_the_next_iteration_taken_for_that_of_the_results(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the overlap scheduler the next K is set before the results arrive."""

    def read(self: Any, sample_state: Any) -> Any:
        reading = own(self, sample_state)
        if reading is not None:
            reading.iteration.k = int(self._executor.model_engine.runtime_draft_len)
        return reading

    own = steps.StepDriver.read
    record = Record(monkeypatch.setattr)
    switched_on(policy=RANDOM)
    monkeypatch.setattr(steps.StepDriver, "read", read)
    executor = random_run(import_stand_in())
    with pytest.raises(AssertionError, match=r"accepted, really|filler counted"):
        check_labels(record, executor.engine.truth)


def test_dummies_taken_for_requests(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank without work decodes the dummy that goes by the name of 0."""
    record = Record(monkeypatch.setattr)
    switched_on(policy=RANDOM)
    trt = import_stand_in()
    run_ranks(trt, [1, 2], iterations=100, attention_dp=True)
    assert all("0" not in context.request_ids for context, _ in record.planned.values())
    for module in (steps, context):
        monkeypatch.setattr(module, "is_real", lambda request: True)
    run_ranks(trt, [1, 2], iterations=100, attention_dp=True)
    assert any("0" in context.request_ids for context, _ in record.planned.values())


def test_k_raised_beyond_what_was_reserved(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(policy=RANDOM)
    trt = import_stand_in()
    monkeypatch.setattr(rules, "uses_kv_manager_v2", lambda executor: False)
    with pytest.raises(violations.KvOverrunError):
        random_run(trt, kv_cache_manager=managers.KVCacheManagerV2(trt))


@pytest.mark.parametrize("attention_dp", [False, True])
def test_ranks_that_decide_for_themselves(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch, attention_dp: bool
) -> None:
    switched_on(policy="static", options={"k": 2})
    trt = import_stand_in()
    monkeypatch.setattr(Agreement, "settle", lambda self, k: k if self._root else 1)
    seeds = [1, 2] if attention_dp else [1, 1]
    with pytest.raises(violations.RanksDivergedError):
        run_ranks(trt, seeds, iterations=100, attention_dp=attention_dp)


def test_a_rank_that_skips_the_agreement_after_a_fault(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(self: Any, scheduled_batch: Any) -> int | None:
        if self._executor.iter_counter == 50 and self._executor.dist.tp_rank == 1:
            return None
        return own(self, scheduled_batch)

    own = steps.StepDriver.before
    switched_on(policy="static", options={"k": 2})
    trt = import_stand_in()
    monkeypatch.setattr(steps.StepDriver, "before", before)
    with pytest.raises(violations.RanksDivergedError):
        run_ranks(trt, [1, 1], iterations=100)


def test_zero_drafts_with_a_drafter_that_goes_stale(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(policy=RANDOM)
    trt = import_stand_in()
    monkeypatch.setattr(ladder, "floor_of", lambda spec_config: 0)
    assert random_run(trt).engine.stale_passes > 0


def test_a_dummy_per_k_where_slots_are_counted(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(policy=RANDOM)
    trt = import_stand_in()
    from adaptive_spec.adapters.tensorrt_llm import patches

    for module in (capability, patches):
        monkeypatch.setattr(module, "lacks_room", lambda *_: "")
    traffic = Traffic(trt, 3, iterations=500, rate=1.0)
    slots = managers.SpeculationSlots(9)
    with pytest.raises(ValueError, match="No free slots"):
        run(one_engine_executor(trt, traffic, spec_resource_manager=slots))


def test_k_without_a_graph(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adaptive_spec.adapters.tensorrt_llm import patches

    switched_on(policy=RANDOM)
    monkeypatch.setattr(patches, "_wrap_graphs_to_capture", lambda *_: None)
    executor = random_run(import_stand_in())
    assert any(replayed is False for *_, replayed in executor.engine.log)
