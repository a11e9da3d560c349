"""A symbol of SGLang that has changed is noticed in its source, before anything is hooked."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptive_spec.adapters.sglang import facts, signatures
from adaptive_spec.errors import UnsupportedEngineError


def tree(folder: Path, text: str) -> Path:
    file = folder / "managers" / "scheduler.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    signatures._parse.cache_clear()
    return folder


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("class S:\n    def run(self, batch, *, extra=None): self.b(self.a())", True),
        ("class S:\n    def run(self, batches): self.a(); self.b()", False),
        ("class T:\n    def run(self, batch): ...", False),
        ("class S:\n    run = None", False),
        ("class S(", False),
    ],
)
def test_a_changed_symbol_is_noticed(tmp_path: Path, text: str, fits: bool) -> None:
    fact = facts.Fact(
        feature="f", file="managers/scheduler.py", symbol="S.run", parameters=("self", "batch")
    )
    assert signatures._holds(tree(tmp_path, text), fact) is fits


def test_a_changed_order_of_calls_is_noticed(tmp_path: Path) -> None:
    fact = facts.Fact(
        feature="f", file="managers/scheduler.py", symbol="run", order=("first", "second")
    )
    assert signatures._holds(tree(tmp_path, "def run():\n  x.first()\n  second()"), fact)
    assert not signatures._holds(tree(tmp_path, "def run():\n  second()\n  first()"), fact)


def test_one_of_two_places_is_enough(tmp_path: Path) -> None:
    fact = facts.Fact(
        feature="f", file="gone.py|managers/scheduler.py", symbol="A.set|S.set", parameters=("x",)
    )
    assert signatures._holds(tree(tmp_path, "class S:\n  def set(self, x): ..."), fact)
    assert not signatures._holds(tree(tmp_path, "class A:\n  def set(self, x): ..."), fact)


def test_without_a_base_fact_nothing_is_switched_on(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedEngineError, match="changed where we hook in") as caught:
        signatures.available_features(tmp_path)
    assert "\n" not in str(caught.value)
