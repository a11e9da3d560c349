"""The contract is found in a tree that keeps it, and every way of breaking it is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adaptive_spec.adapters.tensorrt_llm import contract
from adaptive_spec.adapters.tensorrt_llm.contract import ONE_ENGINE, SOURCE
from adaptive_spec.errors import DataError, UnsupportedEngineError

STAND_IN = Path(__file__).parent / "stand_in"
EXECUTOR = contract.EXECUTOR


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(STAND_IN / "tensorrt_llm", tmp_path / "tensorrt_llm")
    return tmp_path


def edit(tree: Path, file: str, before: str, after: str) -> None:
    path = tree / "tensorrt_llm" / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_tree_that_keeps_it() -> None:
    for path in (STAND_IN, STAND_IN / "tensorrt_llm"):
        report = SOURCE.check_tree(path)
        assert report.routes == {"one-engine": "usable", "host drafter": "usable"}
        assert report.version == "0.0.0+standin"
        assert report.problems == []
        assert len(report.rows) == sum(map(len, contract.FACTS.values()))
        assert all(row[-1] == "as expected" for row in report.rows)


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
        "get_draft_len_for_batch_size(\n                config",
        "self.resolve(\n                config",
        "get_draft_len_for_batch_size is not called at all",
    ),
    (contract.REQUEST, "py_max_new_tokens", "py_max_tokens", "lack py_max_new_tokens"),
]


@pytest.mark.parametrize(("file", "before", "after", "said"), BROKEN)
def test_each_change_upstream_is_named_and_refused_in_one_line(
    tree: Path, file: str, before: str, after: str, said: str
) -> None:
    edit(tree, file, before, after)
    report = SOURCE.check_tree(tree)
    assert said in report.routes["one-engine"]
    with pytest.raises(UnsupportedEngineError) as caught:
        SOURCE.require([ONE_ENGINE], tree / "tensorrt_llm")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_method_may_have_moved_to_another_known_file(tree: Path) -> None:
    package = tree / "tensorrt_llm"
    before, after = contract.ENGINE.split()
    moved = package / after
    moved.parent.mkdir(parents=True)
    (package / before).rename(moved)
    assert SOURCE.check_tree(tree).routes["one-engine"] == "usable"


def test_one_usable_route_is_no_problem(tree: Path) -> None:
    edit(tree, EXECUTOR, "_handle_dynamic_draft_len", "_other")
    report = SOURCE.check_tree(tree)
    assert report.routes["host drafter"] == "usable"
    assert report.problems == []
    edit(tree, contract.DRAFTER, "prepare_draft_tokens", "prepare")
    assert len(SOURCE.check_tree(tree).problems) == 2


def test_no_tree_and_no_python_are_one_line(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(DataError, match="no TensorRT-LLM source"):
        SOURCE.package_folder(tmp_path / "nowhere")
    (tree / "tensorrt_llm" / EXECUTOR).write_text("def broken(:\n")
    with pytest.raises(DataError, match=r"py_executor\.py:1: not Python"):
        SOURCE.check_tree(tree)


def test_a_changed_tree_is_refused_before_anything_is_patched(
    import_stand_in: Callable[[], Any],
    switched_on: Any,
    monkeypatch: pytest.MonkeyPatch,
    tree: Path,
) -> None:
    edit(tree, EXECUTOR, "self.waiting_queue", "self.queue")
    monkeypatch.syspath_prepend(str(tree))
    switched_on(policy="static")
    with pytest.raises(UnsupportedEngineError, match=r"unset TLLM_ADAPTIVE_SPEC"):
        import_stand_in()


def test_not_switched_on_a_changed_tree_is_nobodys_business(
    import_stand_in: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tree: Path
) -> None:
    edit(tree, EXECUTOR, "self.waiting_queue", "self.queue")
    monkeypatch.syspath_prepend(str(tree))
    monkeypatch.delenv("TLLM_ADAPTIVE_SPEC", raising=False)
    stand_in = import_stand_in()
    assert not hasattr(stand_in.py_executor.PyExecutor.start_worker, "__wrapped__")


def test_a_missing_schedule_is_one_line_at_start(
    import_stand_in: Callable[[], Any], switched_on: Any
) -> None:
    from runs import Traffic, executor_of

    from adaptive_spec.errors import ConfigError

    switched_on(policy="static")
    stand_in = import_stand_in()
    spec = stand_in.interface.SpecConfig(4)
    executor = executor_of(stand_in, Traffic(stand_in, 1, 1), spec=spec)
    with pytest.raises(ConfigError, match=r"draft_len_schedule: \{MAX_BATCH_SIZE: 4\}"):
        executor.start_worker()


def test_anything_unforeseen_at_start_is_one_line_that_says_what_to_do(
    import_stand_in: Callable[[], Any], switched_on: Any
) -> None:
    from runs import Traffic, executor_of

    switched_on(policy="static")
    stand_in = import_stand_in()
    executor = executor_of(stand_in, Traffic(stand_in, 1, 1))
    del executor.disable_overlap_scheduler
    with pytest.raises(UnsupportedEngineError, match="unset TLLM_ADAPTIVE_SPEC") as caught:
        executor.start_worker()
    assert "AttributeError" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["none", "fixed"])
def test_where_there_is_nothing_to_decide_it_says_so_and_serves(
    import_stand_in: Callable[[], Any], switched_on: Any, kind: str
) -> None:
    from runs import Traffic

    switched_on(policy="static")
    stand_in = import_stand_in()
    spec = None
    if kind == "fixed":
        mode = stand_in.interface.SpeculativeDecodingMode.USER_PROVIDED
        spec = stand_in.interface.SpecConfig(4, None, mode)
    engine = stand_in.model_engine.PyTorchModelEngine(spec)
    executor = stand_in.py_executor.PyExecutor(engine, Traffic(stand_in, 30, 1))
    executor.start_worker()
    executor.wait()
    assert executor._adaptive_spec is None
    assert len(executor.finished) > 0
    assert any("nothing is switched on" in line for line in stand_in.logger.lines)
