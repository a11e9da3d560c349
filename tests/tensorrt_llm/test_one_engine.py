"""The one-engine route on the stand-in: what runs, what is learned, what is refused to run."""

import gc
import random
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from harness import managers
from harness.executor import BATCH, KMAX, one_engine_executor, run, spec_config_of
from harness.record import Record, check_labels
from harness.traffic import Traffic, wrong_outputs
from older_trees import before_16101, before_19204, newest

from adaptive_spec import check_adapter

ITERATIONS = 1500
RANDOM = "harness.random_policy:RandomPolicy"


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    return Record(monkeypatch.setattr)


@pytest.mark.parametrize(
    ("overlap", "seed", "spec", "tree"),
    [
        pytest.param(False, 1, "floor 1", newest, marks=pytest.mark.long),
        pytest.param(True, 2, "floor 1", newest, marks=pytest.mark.long),  # in the harness, too
        (True, 3, "kept warm", newest),
        pytest.param(True, 4, "stateless", newest, marks=pytest.mark.long),
        (False, 5, "floor 1", before_19204),
        pytest.param(True, 6, "stateless", before_19204, marks=pytest.mark.long),
    ],
)
def test_random_iterations_label_only_real_drafts(
    started: Any,
    record: Record,
    tmp_path: Path,
    overlap: bool,
    seed: int,
    spec: str,
    tree: Callable[[Path], Path],
) -> None:
    trt = started(tree(tmp_path), policy=RANDOM, seed=seed, options={"faults": 0.003})
    traffic = Traffic(trt, seed, iterations=ITERATIONS, rate=0.15, skip=0.02)
    executor = run(
        one_engine_executor(trt, traffic, spec_config=spec_config(trt, spec), overlap=overlap)
    )
    assert check_labels(record, executor.engine.truth) > 1.2 * ITERATIONS
    faults = check_record(executor, record)
    assert set(faults) <= {"plan raised RuntimeError", "plan.verify leaves 0..draft_available"}
    assert sum(faults.values()) > 0
    assert ran(executor) == set(executor._adaptive_spec.controller.capability.uniform_values)
    assert executor.engine.stale_passes == 0
    assert wrong_outputs(traffic) == []
    assert all(request.is_finished for request in traffic.sent)


def spec_config(trt: Any, kind: str) -> Any:
    if kind == "kept warm":
        warm = {"min_runtime_draft_len": 0, "keep_drafter_warm": True}
        return spec_config_of(trt, {BATCH: KMAX}, "FlooredEagle3", **warm)
    return spec_config_of(trt, {BATCH: KMAX}, "SA" if kind == "stateless" else "Eagle3")


def check_record(executor: Any, record: Record) -> dict[str, int]:
    """Check what crossed the seam; return the faults by kind."""
    driver = executor._adaptive_spec
    driver.forget_cancelled()  # as the next iteration would: the last may have been cancelled
    status = driver.controller.status()
    check_adapter(record.steps(), live_requests=status["live_requests"])
    return dict(status["fail_opens"])


def ran(executor: Any) -> set[int]:
    return {k for _, k in executor.engine.history}


def small_run(trt: Any, *, iterations: int = 600, seed: int = 5, **options: Any) -> Any:
    rate = options.pop("rate", 0.15)
    traffic = Traffic(trt, seed, iterations=iterations, rate=rate)
    return run(one_engine_executor(trt, traffic, **options))


@pytest.mark.parametrize(("kind", "least"), [("floor 1", 1), ("kept warm", 0), ("stateless", 0)])
def test_zero_drafts_only_where_the_drafter_survives_it(
    started: Any, kind: str, least: int
) -> None:
    trt = started(policy=RANDOM)
    executor = small_run(trt, spec_config=spec_config(trt, kind))
    assert min(ran(executor)) == least
    assert executor.engine.stale_passes == 0


def test_every_k_of_the_ladder_runs_from_a_graph(started: Any) -> None:
    engine = small_run(started(policy=RANDOM)).engine
    graphs = engine.cuda_graph_runner.graphs
    assert set(graphs) == {(size, k) for size in (1, 2, 4, 8) for k in (1, 2, 3, 5)}
    replayed = [replayed for *_, replayed in engine.log if replayed is not None]
    assert len(replayed) > 200
    assert all(replayed)


def test_the_start_line_names_a_variable_that_nothing_reads(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADAPTIVE_SPEC_CONF", "mine.yaml")
    trt = started(policy=RANDOM)
    small_run(trt, iterations=20)
    (line,) = [line for line in trt.lines if "source-checked" in line]
    assert "nothing reads the variable ADAPTIVE_SPEC_CONF; write ADAPTIVE_SPEC_CONFIG=FILE" in line


def test_the_ladder_can_be_chosen(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TLLM_ADAPTIVE_SPEC_LADDER", "4, 2")
    executor = small_run(started(policy=RANDOM))
    assert ran(executor) == {2, 4, 5}
    assert eager(executor) == 0


def eager(executor: Any) -> int:
    return sum(replayed is False for *_, replayed in executor.engine.log)


@pytest.mark.parametrize("why", ["hybrid model", "counted slots", "manager not known"])
def test_where_dummies_have_no_room_only_scheduled_k_run(started: Any, why: str) -> None:
    """Each captured K keeps a padding dummy, and with it a slot, for good."""
    trt = started(policy=RANDOM)
    options: dict[str, Any] = {}
    if why == "hybrid model":
        options["kv_cache_manager"] = managers.MambaHybridCacheManager(trt)
    if why == "counted slots":
        options["spec_resource_manager"] = managers.SpeculationSlots(BATCH + 2)
    if why == "manager not known":
        manager = managers.MTPHiddenStatesManager(BATCH + 4)
        del manager.slot_manager.max_num_requests
        manager.add_dummy_requests = manager.prepare_resources = lambda *_: None
        options["spec_resource_manager"] = manager
    schedule = {2: 5, 8: 1}
    executor = small_run(trt, spec_config=spec_config_of(trt, schedule), rate=0.5, **options)
    assert ran(executor) == {1, 5}
    assert {k for _, k in executor.engine.cuda_graph_runner.graphs} == {1, 5}
    assert len(executor.engine.cuda_graph_runner.padding_dummy_requests) <= 2
    assert eager(executor) == 0
    assert any("only K values of draft_len_schedule (1,5) may run" in line for line in trt.lines)


def test_with_room_for_a_dummy_per_k_the_whole_ladder_runs(started: Any) -> None:
    trt = started(policy=RANDOM)
    slots = managers.SpeculationSlots(BATCH + 4)
    executor = small_run(trt, spec_resource_manager=slots, rate=0.5)
    assert ran(executor) == {1, 2, 3, 5}
    assert len(executor.engine.cuda_graph_runner.padding_dummy_requests) == 4


def test_the_log_says_how_many_graphs_and_dummies_there_are(started: Any) -> None:
    trt = started(policy="static")
    small_run(trt, iterations=20)
    (line,) = [line for line in trt.lines if "CUDA graphs" in line]
    assert "16 CUDA graphs instead of 4" in line
    assert "4 padding dummies" in line
    assert "each sampling variant, LoRA variant and sequence class" in line


def test_an_operators_zero_under_load_is_kept(started: Any, record: Record) -> None:
    """`max_concurrency` 2 is the schedule {2: Kmax}: nothing is drafted for more requests."""
    trt = started(policy=RANDOM)
    spec = spec_config_of(trt, {}, max_concurrency=2)
    traffic = Traffic(trt, 5, iterations=600, rate=0.25)
    executor = run(one_engine_executor(trt, traffic, spec_config=spec, overlap=False))
    assert {k for count, k in executor.engine.history if count > 2} == {0}
    assert max(ran(executor)) == KMAX
    assert eager(executor) == 0
    assert wrong_outputs(traffic) == []
    assert check_labels(record, executor.engine.truth) > 500
    assert not check_record(executor, record)
    assert any("K = 0 in batches of 3 and more, as configured" in line for line in trt.lines)


def test_with_a_floor_of_its_own_upstream_never_runs_zero(started: Any, record: Record) -> None:
    trt = started(policy="static")
    executor = small_run(trt, spec_config=spec_config_of(trt, {2: KMAX}, "FlooredEagle3"), rate=0.5)
    assert {k for count, k in executor.engine.history if count > 2} == {1}
    contexts = [context for context, _ in record.planned.values()]
    assert {context.engine_k for context in contexts} == {1, KMAX}


def test_vanilla_mtp_with_several_modules_is_left_alone(started: Any) -> None:
    """A shorter draft leaves the later modules' KV unwritten; no floor helps (#16888)."""
    trt = started(policy=RANDOM)
    executor = small_run(trt, spec_config=spec_config_of(trt, {BATCH: KMAX}, "MTP"))
    assert ran(executor) == {KMAX}
    assert executor._adaptive_spec is None
    assert {k for _, k in executor.engine.cuda_graph_runner.graphs} == {KMAX}
    assert any("MTP has a fixed draft length" in line for line in trt.lines)


def share(counts: Iterable[tuple[int, int]]) -> float:
    """Accepted over verified drafts."""
    verified, accepted = np.array(list(counts)).sum(axis=0)
    return float(accepted / verified)


@pytest.mark.parametrize("overlap", [False, True])
def test_upstreams_own_acceptance_counts_filler(
    started: Any, record: Record, overlap: bool
) -> None:
    trt = started(policy=RANDOM)
    traffic = Traffic(trt, 5, iterations=600, rate=0.15)
    executor = one_engine_executor(trt, traffic, overlap=overlap)
    executor.speculation_gate = object()
    run(executor)
    theirs = share(
        (r.py_total_draft_tokens, r.py_total_accepted_draft_tokens) for r in traffic.sent
    )
    ours = share((o.verified.sum(), o.accepted.sum()) for o in record.outcomes.values())
    true = share(pair for step in executor.engine.truth for pair in step.values())
    # Under overlap the host's list of drafts is one iteration behind, which happens to be right.
    assert abs(theirs - true) < 0.05 if overlap else theirs < 0.85 * true
    assert abs(ours - true) < 0.05
    assert any("acceptance_rate_threshold counts filler as rejected" in line for line in trt.lines)


def test_signals_are_those_of_the_executor(started: Any, record: Record) -> None:
    trt = started(policy="static")
    traffic = Traffic(trt, iterations=400, rate=1.0)
    executor = one_engine_executor(trt, traffic, max_batch_size=3)
    run(executor)
    assert {request.sampling_config.temperature for request in traffic.sent} == {None}
    contexts = [context for context, _ in record.planned.values()]
    assert max(context.waiting for context in contexts) >= 3
    assert max(context.batch_size for context in contexts) == 3
    assert {context.prefill_tokens > 0 for context in contexts} == {True, False}
    assert contexts[0].kv_total_tokens == 512 * 32
    assert min(context.kv_free_tokens for context in contexts) < contexts[0].kv_total_tokens
    assert all(context.engine_k == KMAX for context in contexts)
    assert all((context.temperature == 0.0).all() for context in contexts)
    outcomes = record.outcomes.values()
    assert all(outcome.seconds > 0 or np.isnan(outcome.seconds) for outcome in outcomes)
    assert np.mean([not np.isnan(outcome.seconds) for outcome in outcomes]) > 0.9


def test_drafts_that_a_request_cannot_use_are_not_offered(started: Any, record: Record) -> None:
    small_run(started(policy="static"), iterations=300, seed=8)
    for context, _ in record.planned.values():
        assert (context.draft_possible >= 0).all()
    last = [c for c, _ in record.planned.values() if (c.draft_possible == 0).any()]
    assert last


def test_kv_manager_v2_is_only_watched(started: Any, record: Record) -> None:
    trt = started(policy=RANDOM)
    kv = managers.KVCacheManagerV2(trt)
    executor = small_run(trt, kv_cache_manager=kv, iterations=200)
    assert ran(executor) == {KMAX}
    assert any("use_kv_cache_manager_v2: false" in line for line in trt.lines)
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
        ("use_dynamic_tree", True, "tree drafts"),
    ],
)
def test_set_ups_that_were_not_read_are_only_watched(
    started: Any, attribute: str, value: Any, said: str
) -> None:
    trt = started(policy=RANDOM)
    executor = one_engine_executor(trt, Traffic(trt, 9, iterations=60))
    holder = executor
    if attribute in ("pp_size", "cp_size"):
        holder = executor.dist
    if attribute in ("use_rejection_sampling", "is_linear_tree", "use_dynamic_tree"):
        holder = executor.model_engine.spec_config
    setattr(holder, attribute, value)
    run(executor)
    assert ran(executor) == {KMAX}
    assert sum(said in line and "watching only" in line for line in trt.lines) == 1


def test_a_dynamic_tree_with_one_child_for_each_node_is_a_chain(started: Any) -> None:
    trt = started(policy=RANDOM)
    executor = one_engine_executor(trt, Traffic(trt, 9, iterations=60))
    config = executor.model_engine.spec_config
    config.use_dynamic_tree, config.dynamic_tree_max_topK = True, 1
    run(executor)
    assert len(ran(executor)) > 1


def test_shadow_mode_changes_nothing_and_captures_no_graph(started: Any, record: Record) -> None:
    executor = small_run(started(policy=RANDOM, mode="shadow"), iterations=200)
    assert ran(executor) == {KMAX}
    assert set(executor.engine.cuda_graph_runner.graphs) == {(size, KMAX) for size in (1, 2, 4, 8)}
    assert len(record.outcomes) > 100


@pytest.mark.parametrize(("tree", "most"), [(newest, KMAX), (before_16101, 2)])
def test_without_room_in_the_token_budget_k_stays_within_upstreams_own(
    started: Any, tmp_path: Path, tree: Callable[[Path], Path], most: int
) -> None:
    """TensorRT-LLM#16101: before it a batch with more drafts could exceed max_num_tokens."""
    trt = started(tree(tmp_path), policy=RANDOM)
    executor = small_run(trt, spec_config=spec_config_of(trt, {2: KMAX, 64: 2}), rate=0.3)
    assert max(k for count, k in executor.engine.history if count > 2) == most
    assert min(ran(executor)) < 2, "K is chosen"


def test_prefill_and_decode_apart_capture_no_more_graphs(started: Any) -> None:
    trt = started(policy=RANDOM)
    executor = one_engine_executor(trt, Traffic(trt, 5, iterations=1, rate=0.15))
    runner = executor.engine.runner
    assert len(runner._get_graphs_to_capture([8, 4, 2, 1])) > 4
    runner._config.llm_args = SimpleNamespace(cache_transceiver_config=object())
    assert len(runner._get_graphs_to_capture([8, 4, 2, 1])) == 4


def test_with_little_memory_k_falls_and_stays_on_the_ladder(started: Any) -> None:
    trt = started(policy="static")
    kv = managers.KVCacheManager(trt, blocks=16)
    executor = small_run(trt, kv_cache_manager=kv, iterations=800, rate=0.5)
    assert ran(executor) <= {1, 2, 3, 5}
    assert min(ran(executor)) < KMAX
    assert eager(executor) == 0


def test_started_while_warming_up_it_begins_to_decide_afterwards(started: Any) -> None:
    trt = started(policy="static", options={"k": 2})
    traffic = Traffic(trt, 9, iterations=100)

    traffic.each_iteration = lambda inner: setattr(inner, "is_warmup", inner.iter_counter < 50)
    executor = one_engine_executor(trt, traffic)
    executor.is_warmup = True
    run(executor)
    ks = [k for _, k in executor.engine.history]
    assert ks[0] == KMAX
    assert ks[-1] == 2


def test_shutdown_writes_what_is_buffered_and_frees_the_executor(
    started: Any, record: Record, tmp_path: Path
) -> None:
    trt = started(policy="static", trace={"directory": str(tmp_path)})
    executor = one_engine_executor(trt, Traffic(trt, 9, iterations=60))
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


def test_cancelled_requests_leave_nothing_behind(started: Any) -> None:
    trt = started(policy="static")
    traffic = Traffic(trt, 10, iterations=1500, rate=0.3)
    most = 0

    def watch(inner: Any) -> None:
        nonlocal most
        most = max(most, len(inner._adaptive_spec.controller.slots))

    traffic.each_iteration = watch
    executor = run(one_engine_executor(trt, traffic))
    assert most <= 8 + 1  # a batch, and one that was cancelled since
    driver = executor._adaptive_spec
    driver.forget_cancelled()
    assert len(driver.controller.slots) == 0


def test_failed_forward_passes_cost_no_label_and_no_fault(started: Any, record: Record) -> None:
    trt = started(policy=RANDOM, memory_guard=False)
    traffic = Traffic(trt, iterations=600)
    executor = one_engine_executor(trt, traffic, overlap=True, drops_failed_batches=True)
    executor.engine.fail_at = {40, 41, 90, 200, 201}
    run(executor)
    assert sum("planned failure" in line for line in trt.lines) == 5
    assert wrong_outputs(traffic) == []
    assert check_labels(record, executor.engine.truth) > 500
    assert not check_record(executor, record)


def test_iterations_that_were_not_followed_spoil_no_label(
    started: Any, monkeypatch: pytest.MonkeyPatch, record: Record
) -> None:
    from adaptive_spec.adapters.tensorrt_llm import context

    own, chance = context.ContextBuilder.build, random.Random(1)

    def build(*args: Any) -> Any:
        if chance.random() < 0.1:
            raise ValueError("broken on purpose")
        return own(*args)

    monkeypatch.setattr(context.ContextBuilder, "build", build)
    trt = started(policy=RANDOM)
    # Upstream's own K, which runs after a fault, is small in a full batch.
    spec = spec_config_of(trt, {1: 5, 2: 4, 8: 1})
    executor = small_run(trt, iterations=1500, spec_config=spec)
    assert check_labels(record, executor.engine.truth) > 1000
    assert eager(executor) == 0


def test_faults_of_every_hook_leave_the_engine_alone(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trt = started(policy="static", options={"k": 2})

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("broken on purpose")

    from adaptive_spec.adapters.tensorrt_llm import context, steps
    from adaptive_spec.engines.driver import PendingSteps

    monkeypatch.setattr(context.ContextBuilder, "build", broken)
    monkeypatch.setattr(PendingSteps, "pop_matching", broken)
    monkeypatch.setattr(steps.StepDriver, "outcome_of", broken)
    executor = small_run(trt, iterations=300, seed=11)
    assert ran(executor) == {KMAX}
    faults = executor._adaptive_spec.controller.status()["fail_opens"]
    assert set(faults) == {"hook decide raised ValueError", "hook read raised ValueError"}
    said = [line for line in trt.lines if "broken on purpose" in line]
    assert len(said) == 2
