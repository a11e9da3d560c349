"""The one-engine route on the stand-in: what runs, what is learned, what is refused to run."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import KMAX, Record, Traffic, check_labels, executor_of, run

from adaptive_spec import check_adapter

ITERATIONS = 6000
RANDOM = "random_policy:RandomPolicy"


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    return Record(monkeypatch)


@pytest.mark.parametrize(
    ("plain", "seed", "spec"),
    [(True, 1, "floor 1"), (False, 2, "floor 1"), (False, 3, "kept warm"), (False, 4, "stateless")],
)
def test_random_iterations_break_no_rule_and_label_only_real_drafts(
    import_stand_in: Any, switched_on: Any, record: Record, plain: bool, seed: int, spec: str
) -> None:
    switched_on(policy=RANDOM, seed=seed, options={"faults": 0.001})
    stand_in = import_stand_in()
    traffic = Traffic(stand_in, ITERATIONS, seed, skip=0.02)
    executor = executor_of(
        stand_in, traffic, spec=spec_config(stand_in, spec), disable_overlap_scheduler=plain
    )
    driver = run(executor)
    assert check_labels(record, executor.model_engine.log) > 1.5 * ITERATIONS
    driver.sweep()  # as the next iteration would: the last request may have been cancelled
    check_adapter(record.steps(), live_requests=driver.controller.status()["live_requests"])
    faults = driver.controller.status()["fail_opens"]
    assert set(faults) <= {"plan raised RuntimeError", "plan.verify leaves 0..draft_available"}
    assert sum(faults.values()) > 0
    ran = Counter(k for batch, k in executor.history if batch)
    assert set(ran) == set(driver.controller.capability.uniform_values)
    assert len(executor.finished) == traffic.sent


def spec_config(stand_in: Any, kind: str) -> Any:
    interface = stand_in.interface
    if kind == "kept warm":
        return interface.NewerSpecConfig(
            KMAX, {8: KMAX}, min_runtime_draft_len=0, keep_drafter_warm=True
        )
    if kind == "stateless":
        return interface.SpecConfig(KMAX, {8: KMAX}, interface.SpeculativeDecodingMode.SA)
    return interface.SpecConfig(KMAX, {8: KMAX})


def small_run(stand_in: Any, *, iterations: int = 600, seed: int = 5, **options: Any) -> Any:
    executor = executor_of(stand_in, Traffic(stand_in, iterations, seed), **options)
    executor.driver = run(executor)
    return executor


@pytest.mark.parametrize(("kind", "least"), [("floor 1", 1), ("kept warm", 0), ("stateless", 0)])
def test_zero_drafts_only_where_the_drafter_survives_it(
    import_stand_in: Any, switched_on: Any, kind: str, least: int
) -> None:
    switched_on(policy=RANDOM)
    stand_in = import_stand_in()
    executor = small_run(stand_in, spec=spec_config(stand_in, kind))
    assert min(k for _, k in executor.history) == least


def test_every_k_of_the_ladder_runs_from_a_graph(import_stand_in: Any, switched_on: Any) -> None:
    switched_on(policy=RANDOM)
    executor = small_run(import_stand_in())
    runner = executor.model_engine.cuda_graph_runner
    assert runner.graphs == {(size, k) for size in (1, 2, 4, 8) for k in (1, 2, 3, 5)}
    assert runner.replayed > 200
    assert runner.eager == 0


def test_the_ladder_can_be_chosen(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(policy=RANDOM)
    monkeypatch.setenv("TLLM_ADAPTIVE_SPEC_LADDER", "4, 2")
    executor = small_run(import_stand_in())
    assert {k for _, k in executor.history} == {2, 4, 5}
    assert executor.model_engine.cuda_graph_runner.eager == 0


def test_hybrid_models_keep_to_the_k_values_of_the_schedule(
    import_stand_in: Any, switched_on: Any
) -> None:
    switched_on(policy=RANDOM)
    stand_in = import_stand_in()
    executor = small_run(
        stand_in,
        spec=stand_in.interface.SpecConfig(KMAX, {2: 5, 4: 3, 8: 1}),
        kv_cache_manager=stand_in.resource_manager.MambaHybridCacheManager(),
    )
    assert {k for _, k in executor.history} == {1, 3, 5}


@pytest.mark.parametrize("plain", [True, False])
def test_static_policy_runs_its_k_at_once(
    import_stand_in: Any, switched_on: Any, record: Record, plain: bool
) -> None:
    switched_on(policy="static", options={"k": 2})
    executor = small_run(import_stand_in(), disable_overlap_scheduler=plain)
    assert {k for _, k in executor.history} == {2}
    executor.driver.sweep()
    check_adapter(record.steps(), live_requests=len(executor.driver.controller.slots))


def test_signals_are_those_of_the_executor(
    import_stand_in: Any, switched_on: Any, record: Record
) -> None:
    switched_on(policy="static")
    stand_in = import_stand_in()
    traffic = Traffic(stand_in, 400, 7, rate=1.0)
    executor = executor_of(stand_in, traffic, max_batch_size=3)
    run(executor)
    contexts = [context for context, _ in record.planned.values()]
    assert max(context.waiting for context in contexts) >= 3
    assert max(context.batch_size for context in contexts) == 3
    assert {context.prefill_tokens > 0 for context in contexts} == {True, False}
    assert contexts[0].kv_total_tokens == 4096 * 32
    assert min(context.kv_free_tokens for context in contexts) < contexts[0].kv_total_tokens
    assert all(context.engine_k == KMAX for context in contexts)
    assert all((context.temperature == 0.5).all() for context in contexts)
    outcomes = record.outcomes.values()
    assert all(outcome.seconds > 0 or np.isnan(outcome.seconds) for outcome in outcomes)
    assert np.mean([not np.isnan(outcome.seconds) for outcome in outcomes]) > 0.9


def test_drafts_that_a_request_cannot_use_are_not_offered(
    import_stand_in: Any, switched_on: Any, record: Record
) -> None:
    switched_on(policy="static")
    stand_in = import_stand_in()
    run(executor_of(stand_in, Traffic(stand_in, 300, 8)))
    for context, _ in record.planned.values():
        assert (context.draft_possible >= 0).all()
    last = [c for c, _ in record.planned.values() if (c.draft_possible == 0).any()]
    assert last


def test_goodput_policy_follows_acceptance(import_stand_in: Any, switched_on: Any) -> None:
    switched_on(policy="goodput", memory_guard=False)
    executor = small_run(import_stand_in(), iterations=1500)
    assert not executor.driver.controller.status()["fail_opens"]
    assert len({k for _, k in executor.history}) > 1


def test_kv_manager_v2_is_only_watched(
    import_stand_in: Any, switched_on: Any, record: Record
) -> None:
    switched_on(policy=RANDOM)
    stand_in = import_stand_in()
    executor = small_run(
        stand_in, kv_cache_manager=stand_in.resource_manager.KVCacheManagerV2(), iterations=200
    )
    assert {k for _, k in executor.history} == {KMAX}
    assert any("use_kv_cache_manager_v2: false" in line for line in stand_in.logger.lines)
    assert len(record.outcomes) > 100


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("kv_cache_transceiver", object(), "disaggregation"),
        ("kv_connector_manager", object(), "KV connector"),
        ("pp_size", 2, "pipeline parallelism"),
        ("cp_size", 2, "context parallelism"),
        ("use_rejection_sampling", True, "use_rejection_sampling"),
        ("is_linear_tree", False, "tree drafts"),
    ],
)
def test_set_ups_that_were_not_read_are_only_watched(
    import_stand_in: Any, switched_on: Any, attribute: str, value: Any, said: str
) -> None:
    switched_on(policy=RANDOM)
    stand_in = import_stand_in()
    executor = executor_of(stand_in, Traffic(stand_in, 60, 9))
    holder = executor
    if attribute in ("pp_size", "cp_size"):
        holder = executor.dist
    if attribute in ("use_rejection_sampling", "is_linear_tree"):
        holder = executor.model_engine.spec_config
    setattr(holder, attribute, value)
    run(executor)
    assert {k for _, k in executor.history} == {KMAX}
    assert sum(said in line and "watching only" in line for line in stand_in.logger.lines) == 1


def test_shadow_mode_changes_nothing_and_captures_no_graph(
    import_stand_in: Any, switched_on: Any, record: Record
) -> None:
    switched_on(policy=RANDOM, mode="shadow")
    executor = small_run(import_stand_in(), iterations=200)
    assert {k for _, k in executor.history} == {KMAX}
    assert executor.model_engine.cuda_graph_runner.graphs == {(size, KMAX) for size in (1, 2, 4, 8)}
    assert len(record.outcomes) > 100


def test_nothing_happens_during_warm_up(import_stand_in: Any, switched_on: Any) -> None:
    switched_on(policy=RANDOM)
    stand_in = import_stand_in()
    executor = executor_of(stand_in, Traffic(stand_in, 50, 9))
    executor.is_warmup = True
    executor.start_worker()
    executor.wait()
    assert not hasattr(executor, "_adaptive_spec")
    assert {k for _, k in executor.history} == {KMAX}


def test_with_little_memory_k_falls_and_stays_on_the_ladder(
    import_stand_in: Any, switched_on: Any
) -> None:
    switched_on(policy="static")
    stand_in = import_stand_in()
    manager = stand_in.resource_manager.KVCacheManager(blocks=12)
    executor = executor_of(stand_in, Traffic(stand_in, 800, 9, rate=0.5), kv_cache_manager=manager)
    run(executor)
    ran = {k for _, k in executor.history}
    assert ran <= {1, 2, 3, 5}
    assert min(ran) < KMAX
    assert executor.model_engine.cuda_graph_runner.eager == 0


def test_started_while_warming_up_it_begins_to_decide_afterwards(
    import_stand_in: Any, switched_on: Any
) -> None:
    switched_on(policy="static", options={"k": 2})
    stand_in = import_stand_in()
    traffic = Traffic(stand_in, 100, 9)

    def source(inner: Any) -> bool:
        inner.is_warmup = inner.iter_counter < 50
        return traffic(inner)

    executor = executor_of(stand_in, traffic)
    executor.source, executor.is_warmup = source, True
    executor.start_worker()
    executor.wait()
    ks = [k for _, k in executor.history]
    assert ks[0] == KMAX
    assert ks[-1] == 2


def test_shutdown_writes_what_is_buffered_and_lets_the_executor_go(
    import_stand_in: Any, switched_on: Any, record: Record, tmp_path: Path
) -> None:
    switched_on(policy="static", trace={"directory": str(tmp_path)})
    stand_in = import_stand_in()
    executor = executor_of(stand_in, Traffic(stand_in, 40, 9))
    executor.start_worker()
    executor.shutdown()
    assert executor.error is None
    steps = sum(len(file.read_text().splitlines()) for file in tmp_path.iterdir())
    assert steps == len(record.outcomes) > 32  # more than are written at once
    gone = weakref.ref(executor)
    gc.disable()
    try:
        del executor
        assert gone() is None
    finally:
        gc.enable()


def test_cancelled_requests_leave_nothing_behind(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(policy="static")
    stand_in = import_stand_in()
    executor = executor_of(stand_in, Traffic(stand_in, 4000, 10, rate=0.3))
    most = 0

    def watch(inner: Any) -> bool:
        nonlocal most
        most = max(most, len(inner._adaptive_spec.controller.slots))
        return bool(traffic(inner))

    traffic, executor.source = executor.source, watch
    driver = run(executor)
    assert most <= 8 + 1  # a batch, and one that was cancelled since
    driver.sweep()
    assert len(driver.controller.slots) == 0


def test_iterations_that_were_not_followed_spoil_no_label(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch, record: Record
) -> None:
    from adaptive_spec.adapters.tensorrt_llm import context

    own, chance = context.ContextBuilder.build, random.Random(1)

    def build(*args: Any) -> Any:
        if chance.random() < 0.1:
            raise ValueError("broken on purpose")
        return own(*args)

    monkeypatch.setattr(context.ContextBuilder, "build", build)
    switched_on(policy=RANDOM)
    stand_in = import_stand_in()
    # Upstream's own K, which runs after a fault, is small in a full batch.
    executor = small_run(
        stand_in, iterations=3000, spec=stand_in.interface.SpecConfig(KMAX, {1: 5, 2: 4, 8: 1})
    )
    assert check_labels(record, executor.model_engine.log) > 2000
    assert executor.model_engine.cuda_graph_runner.eager == 0


def test_faults_of_every_hook_leave_the_engine_alone(
    import_stand_in: Any, switched_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(policy="static", options={"k": 2})
    stand_in = import_stand_in()
    executor = executor_of(stand_in, Traffic(stand_in, 300, 11))

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("broken on purpose")

    from adaptive_spec.adapters.tensorrt_llm import context, steps
    from adaptive_spec.engines.pending_steps import PendingSteps

    monkeypatch.setattr(context.ContextBuilder, "build", broken)
    monkeypatch.setattr(PendingSteps, "take", broken)
    monkeypatch.setattr(steps.StepDriver, "_observe", broken)
    driver = run(executor)
    assert {k for _, k in executor.history} == {KMAX}
    faults = driver.controller.status()["fail_opens"]
    assert set(faults) == {"hook decide raised ValueError", "hook read raised ValueError"}
    said = [line for line in stand_in.logger.lines if "broken on purpose" in line]
    assert len(said) == 2
