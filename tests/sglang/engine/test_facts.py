"""Every fact about SGLang that the adapter relies on holds: a release that changed one fails here.

`adaptive-spec doctor --sglang-tree FOLDER` checks unpacked wheels.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path

import pytest

from adaptive_spec.adapters.sglang import facts
from adaptive_spec.adapters.sglang.facts import SOURCE
from adaptive_spec.adapters.sglang.versions import VERSIONS
from adaptive_spec.engines.source_facts import Order
from adaptive_spec.errors import UnsupportedEngineError

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def installed() -> Path:
    folder = SOURCE.installed_folder()
    assert folder is not None
    return folder


def test_the_installed_sglang_has_everything(installed: Path) -> None:
    assert [row for row in SOURCE.check_tree(installed).rows if row[-1] != "as expected"] == []


def test_the_installed_version_is_one_that_was_executed() -> None:
    version = importlib.metadata.version("sglang")
    assert VERSIONS.accepts(version)
    assert VERSIONS.was_executed(version)


def test_a_moved_symbol_is_named(installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "sglang"
    for fact in (fact for some in facts.FACTS.values() for fact in some):
        for name in (fact.file,) if isinstance(fact, Order) else fact.files:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(installed / name, copy / name)
    assert SOURCE.require([facts.BASE], copy).available == set(facts.FACTS)
    scheduler = copy / "srt" / "managers" / "scheduler.py"
    text = scheduler.read_text(encoding="utf-8")
    scheduler.write_text(text.replace("def run_batch(", "def run_a_batch("), encoding="utf-8")
    with pytest.raises(UnsupportedEngineError, match=r"Scheduler\.run_batch") as caught:
        SOURCE.require([facts.BASE], copy)
    assert "\n" not in str(caught.value)
