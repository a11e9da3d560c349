"""Every fact about SGLang that the adapter relies on holds: a release that changed one fails here.

`adaptive-spec doctor --sglang-tree FOLDER` checks unpacked wheels.
"""

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from adaptive_spec.adapters.sglang import facts
from adaptive_spec.adapters.sglang.facts import SOURCE
from adaptive_spec.adapters.sglang.rules import RULES
from adaptive_spec.adapters.sglang.versions import VERSIONS
from adaptive_spec.errors import UnsupportedEngineError
from tests.planted_tree import PlantedTree
from tests.refused import refused

pytestmark = [pytest.mark.engine, pytest.mark.every_version]


@pytest.fixture(scope="module")
def installed() -> Path:
    folder = SOURCE.installed_folder()
    assert folder is not None
    return folder


def test_the_installed_sglang_has_everything(installed: Path) -> None:
    assert [row for row in SOURCE.check_tree(installed).rows if row[-1] != "as expected"] == []


def test_files_that_the_rules_give_as_reasons_exist(installed: Path) -> None:
    named = [file for rule in RULES for file in re.findall(r"\((\w[\w/]+\.py)\)", rule.rule)]
    assert len(named) >= 6
    srt = installed / "srt"
    missing = [
        name for name in named if not any((srt / p / name).exists() for p in (".", "managers"))
    ]
    assert missing == []


def test_the_installed_version_is_one_that_was_executed() -> None:
    version = importlib.metadata.version("sglang")
    assert VERSIONS.accepts(version)
    assert VERSIONS.was_executed(version)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> PlantedTree:
    return PlantedTree(SOURCE, tmp_path_factory.mktemp("planted") / "sglang")


@pytest.fixture
def tree(copy: PlantedTree, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlantedTree]:
    yield from copy.used(monkeypatch)


def test_a_moved_symbol_of_the_base_is_named(tree: PlantedTree) -> None:
    assert SOURCE.require([facts.BASE], tree.folder).missing == {}
    tree.plant("srt/managers/scheduler.py", r"def run_batch\(", "def run_a_batch(")
    with refused(UnsupportedEngineError, match=r"Scheduler\.run_batch"):
        SOURCE.require([facts.BASE], tree.folder)


@pytest.mark.parametrize(
    ("feature", "file", "old", "new"),
    [
        (facts.STANDALONE, "speculative/standalone_worker_v2.py", "server_args:", "arguments:"),
        (facts.TREES, "mem_cache/allocation_sizing.py", "speculative_eagle_topk", "eagle_topk"),
        (facts.NGRAM, "model_executor/runner/decode_cuda_graph_runner.py", "captured_req_", "req_"),
        (facts.NGRAM, "speculative/ngram_worker.py", "def _init_preallocated_", "def _init_"),
        (facts.CONFIDENCE, "speculative/eagle_worker_v2.py", "next_token_logits", "logits"),
        (facts.PLANNING_AHEAD, "managers/scheduler.py", '.to("cpu")', ".cpu_copy()"),
        (facts.HTTP, "*", "recv_req: GetInternalStateReq", "request: GetInternalState"),
        (facts.HTTP, "entrypoints/engine.py", ".check_server_args()", ".check()"),
        (facts.OVERRIDES, "runtime_context.py", "_overrides_log", "_overrides"),
        (facts.RESOLVED, "runtime_context.py", "def get_spec(", "def get_speculation("),
    ],
)
def test_a_changed_symbol_takes_away_the_feature_that_needs_it(
    tree: PlantedTree, feature: str, file: str, old: str, new: str
) -> None:
    tree.plant(file if file == "*" else f"srt/{file}", re.escape(old), new)
    assert set(SOURCE.require([facts.BASE], tree.folder).missing) == {feature}
