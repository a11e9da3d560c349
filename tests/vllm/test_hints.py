"""How vLLM's extra arguments carry hints.

What their values mean: tests/core/engines/test_hints.py.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from adaptive_spec.adapters.vllm.hints import HintReader
from adaptive_spec.engines.hints import NO_HINTS, Hints


def read(extra_args: Any) -> tuple[Hints, list[str]]:
    ignored: list[str] = []
    return HintReader(ignored.append).read(extra_args), ignored


@pytest.mark.parametrize("extra_args", [None, {}, {"other": 1}, {"k_cap": 1}, {7: 1}])
def test_without_hints(extra_args: Any) -> None:
    assert read(extra_args) == (NO_HINTS, [])


def test_hints_are_flat_keys_among_others() -> None:
    given = {
        "adaptive_spec_k_cap": 2,
        "other": "x",
        "adaptive_spec_tpot_ms": 25,
        "adaptive_spec_task": "chat",
    }
    assert read(given) == (Hints(2, 0.025, 0), [])
    assert read({"adaptive_spec_off": 1, "adaptive_spec_k_cap": 3}) == (Hints(0, math.inf, -1), [])


@pytest.mark.parametrize(
    ("key", "value"),
    [("adaptive_spec_k_cap", "4"), ("adaptive_spec_off", 2), ("adaptive_spec_tempo", 1)],
)
def test_bad_values_are_ignored_and_counted_by_the_key_that_was_sent(key: str, value: Any) -> None:
    assert read({key: value}) == (NO_HINTS, [key])
