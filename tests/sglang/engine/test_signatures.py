"""Every symbol of SGLang that the adapter relies on is there: a release that moved one fails here.

`python tests/sglang/engine/test_signatures.py FOLDER ...` checks unpacked wheels.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

import pytest

from adaptive_spec.adapters.sglang import facts, signatures, versions
from adaptive_spec.errors import UnsupportedEngineError

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def installed() -> Path:
    folder = signatures.installed_folder()
    assert folder is not None
    return folder


@pytest.mark.parametrize(
    "fact", facts.FACTS, ids=[f"{fact.file}-{fact.describe()}" for fact in facts.FACTS]
)
def test_sglang_has(fact: facts.Fact, installed: Path) -> None:
    missing = [
        each.text for each in signatures.mismatches(installed) if fact.describe() in each.text
    ]
    assert not missing, f"SGLang {importlib.metadata.version('sglang')} has no {missing[0]}"


def test_the_installed_version_is_one_that_was_executed() -> None:
    version = importlib.metadata.version("sglang")
    assert versions.in_range(version)
    assert versions.was_executed(version)


def test_a_moved_symbol_is_named(installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "srt"
    for fact in facts.FACTS:
        for name in fact.file.split("|"):
            if (installed / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(installed / name, copy / name)
    assert signatures.mismatches(copy) == signatures.mismatches(installed)
    scheduler = copy / "managers" / "scheduler.py"
    text = scheduler.read_text(encoding="utf-8")
    scheduler.write_text(text.replace("def run_batch(", "def run_a_batch("), encoding="utf-8")
    signatures._parse.cache_clear()
    with pytest.raises(UnsupportedEngineError, match=r"Scheduler\.run_batch") as caught:
        signatures.available_features(copy)
    assert "\n" not in str(caught.value)


if __name__ == "__main__":
    for tree in map(Path, sys.argv[1:]):
        found = signatures.mismatches(tree)
        print(f"{tree}: {len(facts.FACTS) - len(found)} of {len(facts.FACTS)} hold")
        for mismatch in found:
            print(f"  {mismatch.feature}: {mismatch.text}")
