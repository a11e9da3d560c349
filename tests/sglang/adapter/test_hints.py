"""What a request's hints say, and what becomes of ones that can't be used."""

from __future__ import annotations

import math
from typing import Any

import pytest

from adaptive_spec.adapters.sglang.hints import MAX_TASKS, NO_HINTS, HintReader, Hints


def test_hints_are_read_from_one_dict() -> None:
    reader = HintReader(lambda key: pytest.fail(key))
    assert reader.read(None) is NO_HINTS
    assert reader.read({"another": {"k_cap": 1}}) is NO_HINTS
    hints = reader.read({"adaptive_spec": {"k_cap": 3, "tpot_ms": 40, "task": "code"}})
    assert hints == Hints(3, 0.04, 0)
    assert reader.read({"adaptive_spec": {"off": True, "k_cap": 5}}).draft_cap == 0
    assert reader.read({"adaptive_spec": {"off": 0, "k_cap": 5.0}}).draft_cap == 5
    assert reader.read({"adaptive_spec": {"task": "chat"}}).task == 1
    assert reader.read({"adaptive_spec": {"task": "code"}}).task == 0


@pytest.mark.parametrize(
    "given",
    [
        "off",
        {"k_cap": -1},
        {"k_cap": 1.5},
        {"k_cap": True},
        {"off": 2},
        {"tpot_ms": 0},
        {"tpot_ms": math.nan},
        {"task": ""},
        {"task": "x" * 65},
        {"task": 3},
        {"unknown": 1},
    ],
)
def test_a_bad_hint_is_ignored_and_counted(given: Any) -> None:
    ignored: list[str] = []
    assert HintReader(ignored.append).read({"adaptive_spec": given}) == NO_HINTS
    assert len(ignored) == 1


def test_the_table_of_task_labels_is_bounded() -> None:
    ignored: list[str] = []
    reader = HintReader(ignored.append)
    found = [reader.read({"adaptive_spec": {"task": f"t{i}"}}).task for i in range(MAX_TASKS + 5)]
    assert found == [*range(MAX_TASKS), *[-1] * 5]
    assert len(ignored) == 5


def test_names_that_clients_make_up_share_one_counter() -> None:
    ignored: list[str] = []
    reader = HintReader(ignored.append)
    for number in range(100):
        reader.read({"adaptive_spec": {f"made-up-{number}": 1}})
    reader.read({"adaptive_spec": {"k_cap": "many"}})
    assert len(ignored) == 101
    assert set(ignored) == {"adaptive_spec.unknown key", "adaptive_spec.k_cap"}
