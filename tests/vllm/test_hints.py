from __future__ import annotations

import math
from typing import Any

import pytest

from adaptive_spec.adapters.vllm.hints import MAX_TASKS, NO_CAP, NO_HINTS, HintReader, Hints


def read(extra_args: Any) -> tuple[Hints, list[str]]:
    ignored: list[str] = []
    return HintReader(ignored.append).read(extra_args), ignored


@pytest.mark.parametrize("extra_args", [None, {}, {"other": 1}])
def test_without_hints(extra_args: Any) -> None:
    assert read(extra_args) == (NO_HINTS, [])


@pytest.mark.parametrize(
    ("extra_args", "expected"),
    [
        ({"adaptive_spec_k_cap": 2}, Hints(2, math.inf, -1)),
        ({"adaptive_spec_k_cap": 3.0}, Hints(3, math.inf, -1)),
        ({"adaptive_spec_off": 1}, Hints(0, math.inf, -1)),
        ({"adaptive_spec_off": 0}, Hints(NO_CAP, math.inf, -1)),
        ({"adaptive_spec_off": 1, "adaptive_spec_k_cap": 3}, Hints(0, math.inf, -1)),
        ({"adaptive_spec_tpot_ms": 25}, Hints(NO_CAP, 0.025, -1)),
        ({"adaptive_spec_task": "chat"}, Hints(NO_CAP, math.inf, 0)),
    ],
)
def test_good_values(extra_args: Any, expected: Hints) -> None:
    assert read(extra_args) == (expected, [])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("adaptive_spec_k_cap", -1),
        ("adaptive_spec_k_cap", "4"),
        ("adaptive_spec_k_cap", 1.5),
        ("adaptive_spec_k_cap", math.nan),
        ("adaptive_spec_k_cap", [1, 2]),
        ("adaptive_spec_off", 2),
        ("adaptive_spec_off", "yes"),
        ("adaptive_spec_tpot_ms", 0),
        ("adaptive_spec_tpot_ms", math.inf),
        ("adaptive_spec_task", 7),
        ("adaptive_spec_task", ""),
        ("adaptive_spec_task", "x" * 65),
        ("adaptive_spec_tempo", 1),
    ],
)
def test_bad_values_are_ignored_and_counted(key: str, value: Any) -> None:
    assert read({key: value}) == (NO_HINTS, [key])


def test_table_of_tasks_is_bounded() -> None:
    ignored: list[str] = []
    reader = HintReader(ignored.append)
    numbers = [
        reader.read({"adaptive_spec_task": f"task-{index}"}).task for index in range(MAX_TASKS + 5)
    ]
    assert numbers == [*range(MAX_TASKS), *[-1] * 5]
    assert len(ignored) == 5
    assert reader.read({"adaptive_spec_task": "task-3"}).task == 3
