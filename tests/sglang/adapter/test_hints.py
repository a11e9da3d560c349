"""How SGLang's custom parameters carry hints.

What their values mean: tests/core/engines/test_hints.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from adaptive_spec.adapters.sglang.hints import HintReader
from adaptive_spec.engines.hints import NO_HINTS, Hints


def test_hints_are_read_from_one_dict() -> None:
    reader = HintReader(lambda key: pytest.fail(key))
    assert reader.read(None) is NO_HINTS
    assert reader.read({"another": {"k_cap": 1}}) is NO_HINTS
    hints = reader.read({"adaptive_spec": {"k_cap": 3, "tpot_ms": 40, "task": "code"}})
    assert hints == Hints(3, 0.04, 0)
    assert reader.read({"adaptive_spec": {"off": True, "k_cap": 5}}).draft_cap == 0
    assert reader.read({"adaptive_spec": {"task": "chat"}}).task == 1
    assert reader.read({"adaptive_spec": {"task": "code"}}).task == 0


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ("off", "adaptive_spec"),
        ([1], "adaptive_spec"),
        ({"k_cap": -1}, "adaptive_spec.k_cap"),
        ({"task": "x" * 65}, "adaptive_spec.task"),
        ({"unknown": 1}, "adaptive_spec.unknown"),
        ({3: 1}, "adaptive_spec.(other keys)"),
    ],
)
def test_a_bad_hint_is_ignored_and_counted(given: Any, counted: str) -> None:
    ignored: list[str] = []
    assert HintReader(ignored.append).read({"adaptive_spec": given}) == NO_HINTS
    assert ignored == [counted]
