"""The contract is found in a tree that keeps it, and every way of breaking it is named."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.executor import BATCH, KMAX, one_engine_executor, spec_config_of
from harness.traffic import Traffic
from older_trees import before_19204, edit

from adaptive_spec.adapters.tensorrt_llm import contract
from adaptive_spec.adapters.tensorrt_llm.contract import ONE_ENGINE, SOURCE
from adaptive_spec.errors import ConfigError, DataError, UnsupportedEngineError
from tests.refused import refused

STAND_IN = Path(__file__).parent / "stand_in"
EXECUTOR = contract.EXECUTOR


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(STAND_IN / "tensorrt_llm", tmp_path / "tensorrt_llm")
    return tmp_path


def test_a_tree_that_keeps_it() -> None:
    for path in (STAND_IN, STAND_IN / "tensorrt_llm"):
        report = SOURCE.check_tree(path)
        routes = (ONE_ENGINE, contract.HOST_DRAFTER, contract.RESERVE)
        assert report.routes == dict.fromkeys(routes, "usable")
        assert report.version == "0.0.0+standin"
        assert report.problems == []
        assert len(report.rows) == sum(map(len, contract.FACTS.values()))
        assert all(row[-1] == "as expected" for row in report.rows)


NEWEST_CALL = "        update_draft_len(\n            self.model_engine"
BROKEN = [
    (EXECUTOR, "def start_worker(self)", "def start(self)", "start_worker(self) is missing"),
    (
        EXECUTOR,
        "def _handle_dynamic_draft_len(self, scheduled_batch)",
        "def _handle_dynamic_draft_len(self, batch)",
        "has the parameters (self, batch)",
    ),
    (
        EXECUTOR,
        "def _update_requests(self, sample_state, resource_manager=None)",
        "def _update_requests(self, sample_state, stream)",
        "also needs stream",
    ),
    (
        contract.SPEC_UTILS,
        "max_draft_len, min_draft_len=0",
        "max_draft_len, *, table",
        "also needs table",
    ),
    (EXECUTOR, "waiting_queue", "queue", "lack waiting_queue"),
    (
        EXECUTOR,
        "                self._handle_dynamic_draft_len(batch)\n"
        "                self.resource_manager.prepare_resources(batch)\n",
        "                self.resource_manager.prepare_resources(batch)\n"
        "                self._handle_dynamic_draft_len(batch)\n",
        "prepare_resources is not called after _handle_dynamic_draft_len",
    ),
    (
        EXECUTOR,
        NEWEST_CALL,
        NEWEST_CALL.replace("update", "set"),
        "update_draft_len is not called at all",
    ),
    (
        contract.SPEC_UTILS,
        "draft_len = get_draft_len_for_batch_size(",
        "draft_len = table_of(",
        "resolve_draft_len differs: get_draft_len_for_batch_size is not called at all",
    ),
    (
        contract.SPEC_UTILS,
        "runtime_draft_len = resolve_draft_len(",
        "runtime_draft_len = decide(",
        "update_draft_len differs: resolve_draft_len is not called at all",
    ),
    (contract.REQUEST, "py_max_new_tokens", "py_max_tokens", "lack py_max_new_tokens"),
    # What safety hangs on: read with a default, so a new name would go unnoticed.
    (contract.RANKS, "def tp_size", "def ranks", "Distributed.tp_size(self) is missing"),
    (contract.RANKS, "def tp_rank", "def rank", "Distributed.tp_rank(self) is missing"),
    (contract.RANKS, "def pp_size", "def stages", "Distributed.pp_size(self) is missing"),
    (contract.RANKS, "def cp_size", "def slices", "Distributed.cp_size(self) is missing"),
    (contract.CONFIG, "use_rejection_sampling", "rejection", "lack use_rejection_sampling"),
    (contract.CONFIG, "is_linear_tree", "linear", "lack is_linear_tree"),
    (EXECUTOR, "kv_cache_transceiver", "transceiver", "lack kv_cache_transceiver"),
    (EXECUTOR, "kv_connector_manager", "connector", "lack kv_connector_manager"),
    (EXECUTOR, "_is_kv_manager_v2", "_is_v2", "lack _is_kv_manager_v2"),
    (EXECUTOR, "speculation_gate", "gate", "lack speculation_gate"),
    (contract.REQUEST, "is_dummy(self)", "is_filler(self)", "lack is_dummy"),
    (contract.REQUEST, "py_request_id", "py_name", "lack py_request_id"),
    (contract.SAMPLER.split()[0], "requests: list", "whom: list", "lack requests"),
    (contract.SCHEDULER.split()[0], "def batch_size", "def size", "lack batch_size"),
    (contract.RESOURCES, "SPEC_RESOURCE_MANAGER", "DRAFT", "lack SPEC_RESOURCE_MANAGER"),
]


def test_main_before_19204_keeps_it_too(tmp_path: Path) -> None:
    tree = before_19204(tmp_path)
    assert SOURCE.check_tree(tree).routes["one-engine"] == "usable"
    executor = tree / "tensorrt_llm" / EXECUTOR
    edit(executor, "= get_draft_len_for_batch_size(", "= table_of(")
    assert "draft_len is not called" in SOURCE.check_tree(tree).routes["one-engine"]


@pytest.mark.parametrize(("file", "before", "after", "said"), BROKEN)
def test_each_change_upstream_is_named_and_refused_in_one_line(
    tree: Path, file: str, before: str, after: str, said: str
) -> None:
    edit(tree / "tensorrt_llm" / file, before, after)
    report = SOURCE.check_tree(tree)
    assert said in report.routes["one-engine"]
    with refused(UnsupportedEngineError, said):
        SOURCE.require([ONE_ENGINE], tree / "tensorrt_llm")


@pytest.mark.parametrize("files", [contract.ENGINE, contract.SAMPLER, contract.SCHEDULER])
def test_what_moved_to_another_known_file_is_found(tree: Path, files: str) -> None:
    package = tree / "tensorrt_llm"
    now, elsewhere = sorted(files.split(), key=lambda file: not (package / file).is_file())
    moved = package / elsewhere
    moved.parent.mkdir(parents=True, exist_ok=True)
    (package / now).rename(moved)
    assert SOURCE.check_tree(tree).routes["one-engine"] == "usable"


def test_one_usable_route_is_no_problem(tree: Path) -> None:
    edit(tree / "tensorrt_llm" / EXECUTOR, "_handle_dynamic_draft_len", "_other")
    report = SOURCE.check_tree(tree)
    assert report.routes["host drafter"] == "usable"
    assert report.problems == []
    edit(tree / "tensorrt_llm" / contract.DRAFTER, "prepare_draft_tokens", "prepare")
    assert len(SOURCE.check_tree(tree).problems) == 2


def test_no_tree_and_no_python_are_one_line(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(DataError, match="no TensorRT-LLM source"):
        SOURCE.package_folder(tmp_path / "nowhere")
    (tree / "tensorrt_llm" / EXECUTOR).write_text("def broken(:\n")
    with pytest.raises(DataError, match=r"py_executor\.py:1: not Python"):
        SOURCE.check_tree(tree)


def test_a_changed_tree_is_refused_before_anything_is_patched(started: Any, tree: Path) -> None:
    edit(tree / "tensorrt_llm" / EXECUTOR, "waiting_queue", "queue")
    with pytest.raises(UnsupportedEngineError, match=r"unset TLLM_ADAPTIVE_SPEC"):
        started(tree, policy="static")


def test_not_switched_on_a_changed_tree_is_nobodys_business(
    import_stand_in: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tree: Path
) -> None:
    edit(tree / "tensorrt_llm" / EXECUTOR, "waiting_queue", "queue")
    monkeypatch.delenv("TLLM_ADAPTIVE_SPEC", raising=False)
    trt = import_stand_in(tree)
    assert not hasattr(trt.py_executor.PyExecutor.start_worker, "__wrapped__")


def test_a_missing_schedule_is_one_line_at_start(started: Any) -> None:
    trt = started(policy="static")
    spec = spec_config_of(trt, {}, max_draft_len=4)
    executor = one_engine_executor(trt, Traffic(trt), spec_config=spec)
    with pytest.raises(ConfigError, match=r"draft_len_schedule: \{MAX_BATCH_SIZE: 4\}"):
        executor.start_worker()


def test_anything_unforeseen_at_start_is_one_line_with_a_remedy(started: Any) -> None:
    trt = started(policy="static")
    executor = one_engine_executor(trt, Traffic(trt))
    executor.max_batch_size = "many"
    with refused(UnsupportedEngineError, "unset TLLM_ADAPTIVE_SPEC", "ValueError"):
        executor.start_worker()


@pytest.mark.parametrize("kind", ["none", "fixed"])
def test_where_there_is_nothing_to_decide_it_says_so_and_serves(started: Any, kind: str) -> None:
    trt = started(policy="static")
    traffic = Traffic(trt, iterations=30)
    spec = spec_config_of(trt, {BATCH: KMAX}, "UserProvided") if kind == "fixed" else None
    executor = one_engine_executor(trt, traffic, spec_config=spec)
    if kind == "none":
        executor.model_engine.spec_config = None
        executor.model_engine.is_spec_decode = False
    executor.start_worker()
    executor.shutdown()
    assert executor._adaptive_spec is None
    assert any("nothing is switched on" in line for line in trt.lines)
