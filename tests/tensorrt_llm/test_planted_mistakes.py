"""Mistakes put into the adapter on purpose: the stand-in and the checks find each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runs import Record, Traffic, check_labels, executor_of, run, run_ranks

from adaptive_spec.adapters.tensorrt_llm import capability, ladder, steps
from adaptive_spec.adapters.tensorrt_llm.agreement import Agreement
from adaptive_spec.adapters.tensorrt_llm.context import ContextBuilder
from adaptive_spec.engines.pending_steps import PendingSteps

RANDOM = "random_policy:RandomPolicy"


def random_run(stand_in: Any, *, iterations: int = 500, **options: Any) -> Any:
    executor = executor_of(stand_in, Traffic(stand_in, iterations, 3), **options)
    run(executor)
    return executor


@pytest.mark.parametrize("plain", [True, False])
def test_filler_counted_as_rejected_drafts(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    def ran(self: Any, slots: Any, prefilled: Any, k: int) -> None:
        self._drafted[np.arange(1000)] = 5

    record = Record(monkeypatch)
    switched_on(policy=RANDOM)
    monkeypatch.setattr(ContextBuilder, "ran", ran)
    executor = random_run(import_stand_in(), disable_overlap_scheduler=plain)
    with pytest.raises(AssertionError, match="filler counted"):
        check_labels(record, executor.model_engine.log)


def test_lengths_of_upstreams_lists_taken_for_drafts_at_hand(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the overlap scheduler they are an iteration behind."""

    def slot_of(self: Any, request: Any) -> int:
        slot = int(own(self, request))
        self._drafted[np.array([slot])] = len(request.py_draft_tokens)
        return slot

    own = ContextBuilder.slot_of
    record = Record(monkeypatch)
    switched_on(policy=RANDOM)
    monkeypatch.setattr(ContextBuilder, "slot_of", slot_of)
    executor = random_run(import_stand_in())
    with pytest.raises(AssertionError, match="filler counted"):
        check_labels(record, executor.model_engine.log)


def test_a_late_prompt_result_taken_for_the_first_verification(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(self: Any, matches: Any) -> Any:
        return self.pop() if self else None

    record = Record(monkeypatch)
    switched_on(policy=RANDOM)
    monkeypatch.setattr(PendingSteps, "take", take)
    executor = random_run(import_stand_in())
    with pytest.raises(AssertionError, match="accepted, really"):
        check_labels(record, executor.model_engine.log)


def test_k_raised_beyond_what_was_reserved(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(policy=RANDOM)
    stand_in = import_stand_in()
    monkeypatch.setattr(capability, "uses_kv_manager_v2", lambda executor: False)
    with pytest.raises(stand_in.violations.KvOverrunError):
        random_run(stand_in, kv_cache_manager=stand_in.resource_manager.KVCacheManagerV2())


@pytest.mark.parametrize("attention_dp", [False, True])
def test_ranks_that_decide_for_themselves(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch, attention_dp: bool
) -> None:
    switched_on(policy="static", options={"k": 2})
    stand_in = import_stand_in()
    monkeypatch.setattr(Agreement, "settle", lambda self, k: k if self._root else 1)
    seeds = [1, 2] if attention_dp else [1, 1]
    with pytest.raises(stand_in.violations.RanksDivergedError):
        run_ranks(stand_in, seeds, iterations=100, enable_attention_dp=attention_dp)


def test_a_rank_that_skips_the_agreement_after_a_fault(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(self: Any, scheduled_batch: Any) -> int | None:
        if self._executor.iter_counter == 50 and self._executor.dist.tp_rank == 1:
            return None
        return own(self, scheduled_batch)

    own = steps.StepDriver.before
    switched_on(policy="static", options={"k": 2})
    stand_in = import_stand_in()
    monkeypatch.setattr(steps.StepDriver, "before", before)
    with pytest.raises(stand_in.violations.RanksDivergedError):
        run_ranks(stand_in, [1, 1], iterations=100)


def test_zero_drafts_with_a_drafter_that_goes_stale(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(policy=RANDOM)
    stand_in = import_stand_in()
    monkeypatch.setattr(ladder, "floor_of", lambda spec_config: 0)
    with pytest.raises(stand_in.violations.StaleDrafterError):
        random_run(stand_in)


def test_k_without_a_graph(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adaptive_spec.adapters.tensorrt_llm import patches

    switched_on(policy=RANDOM)
    monkeypatch.setattr(patches, "_wrap_graphs_to_capture", lambda cls, switch: None)
    executor = random_run(import_stand_in())
    assert executor.model_engine.cuda_graph_runner.eager > 0
