"""What a request's hints say, and what becomes of ones that can't be used."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.config import Config
from adaptive_spec.engines.hints import (
    MAX_TASKS,
    MAX_UNKNOWN_KEYS,
    NO_CAP,
    NO_HINTS,
    OTHER_KEYS,
    FlatHints,
    HintParser,
    Hints,
    NestedHints,
    RecentNumbers,
)

KEYS = ("off", "k_cap", "tpot_ms", "task")


class SpecHints(HintParser):
    prefix = "spec_"


class PlainHints(HintParser):
    prefix = ""


def parse(hints: dict[Any, Any]) -> tuple[Hints, list[str]]:
    ignored: list[str] = []
    return SpecHints(ignored.append).parse(hints.items()), ignored


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ({}, NO_HINTS),
        ({"k_cap": 2}, Hints(2, math.inf, -1)),
        ({"k_cap": 3.0}, Hints(3, math.inf, -1)),
        ({"k_cap": 10**18}, NO_HINTS),
        ({"off": 1}, Hints(0, math.inf, -1)),
        ({"off": True}, Hints(0, math.inf, -1)),
        ({"off": 0}, NO_HINTS),
        ({"off": 1, "k_cap": 3}, Hints(0, math.inf, -1)),
        ({"k_cap": 3, "off": False}, Hints(3, math.inf, -1)),
        ({"tpot_ms": 25}, Hints(NO_CAP, 0.025, -1)),
        ({"task": "chat"}, Hints(NO_CAP, math.inf, 0)),
        ({"k_cap": 1, "tpot_ms": 40, "task": "code"}, Hints(1, 0.04, 0)),
    ],
)
def test_good_values_are_taken(hints: dict[str, Any], expected: Hints) -> None:
    assert parse(hints) == (expected, [])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("k_cap", -1),
        ("k_cap", "4"),
        ("k_cap", 1.5),
        ("k_cap", True),
        ("k_cap", math.nan),
        ("k_cap", 10**400),
        ("k_cap", [1, 2]),
        ("off", 2),
        ("off", "yes"),
        ("tpot_ms", 0),
        ("tpot_ms", math.inf),
        ("tpot_ms", 10**400),
        ("tpot_ms", 5e-324),
        ("tpot_ms", 1e-9),
        ("task", 7),
        ("task", ""),
        ("task", "x" * 65),
        ("tempo", 1),
    ],
)
def test_bad_values_are_ignored_and_counted(key: str, value: Any) -> None:
    assert parse({key: value}) == (NO_HINTS, [f"spec_{key}"])


def test_a_hint_that_the_server_does_not_honour_is_ignored_and_counted() -> None:
    ignored: list[str] = []
    reader = FlatHints(ignored.append, Config().hints)
    asked = {"adaptive_spec_k_cap": 2, "adaptive_spec_tpot_ms": 5}
    assert reader.read(asked) == Hints(2, math.inf, -1)
    assert ignored == ["adaptive_spec_tpot_ms"]


@given(
    st.dictionaries(
        st.sampled_from(KEYS) | st.text() | st.integers(),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    )
)
def test_whatever_a_client_sends_the_hints_are_usable(hints: dict[Any, Any]) -> None:
    found, ignored = parse(hints)
    assert 0 <= found.draft_cap <= NO_CAP
    assert found.tpot_seconds > 0
    assert -1 <= found.task < MAX_TASKS
    assert len(ignored) <= len(hints)
    assert set(hints) - set(KEYS) == set() or ignored


def test_a_client_cannot_shut_out_the_labels_of_others() -> None:
    ignored: list[str] = []
    parser = PlainHints(ignored.append)

    def number(label: str) -> int:
        return parser.parse([("task", label)]).task

    regular = number("regular")
    made_up = {number(f"made-up-{i}") for i in range(10 * MAX_TASKS)}
    late = number("late")
    assert len({regular, late, *made_up}) == 2 + 10 * MAX_TASKS
    for i in range(20 * MAX_TASKS):
        number(f"another-{i}")
        assert number("late") == late, "a label in use keeps its number"
    assert not ignored


def test_keys_that_clients_make_up_do_not_each_become_a_counter() -> None:
    counted: Counter[str] = Counter()

    def count(key: str) -> None:
        counted[key] += 1

    parser = PlainHints(count)
    for turn in range(2):
        for number in range(100):
            parser.parse([(f"fake_{number}", turn)])
    parser.parse([("k_cap", "many"), (3, 1)])
    assert len(counted) == MAX_UNKNOWN_KEYS + 2
    assert counted["fake_0"] == 2
    assert counted[OTHER_KEYS] == 2 * (100 - MAX_UNKNOWN_KEYS) + 1
    assert counted["k_cap"] == 1


@pytest.mark.parametrize("key", ["x" * 100_000, "two words", "\ud800", "Ünknown", "", 3, None])
def test_only_short_plain_names_are_kept(key: Any) -> None:
    assert parse({key: 1}) == (NO_HINTS, [f"spec_{OTHER_KEYS}"])


def read_flat(parameters: Any) -> tuple[Hints, list[str]]:
    ignored: list[str] = []
    return FlatHints(ignored.append).read(parameters), ignored


@pytest.mark.parametrize("parameters", [None, {}, {"other": 1}, {"k_cap": 1}, {7: 1}])
def test_without_flat_hints(parameters: Any) -> None:
    assert read_flat(parameters) == (NO_HINTS, [])


def test_flat_hints_are_keys_among_others() -> None:
    given = {
        "adaptive_spec_k_cap": 2,
        "other": "x",
        "adaptive_spec_tpot_ms": 25,
        "adaptive_spec_task": "chat",
    }
    assert read_flat(given) == (Hints(2, 0.025, 0), [])
    both = {"adaptive_spec_off": 1, "adaptive_spec_k_cap": 3}
    assert read_flat(both) == (Hints(0, math.inf, -1), [])


@pytest.mark.parametrize(
    ("key", "value"),
    [("adaptive_spec_k_cap", "4"), ("adaptive_spec_off", 2), ("adaptive_spec_tempo", 1)],
)
def test_bad_flat_hints_are_counted_by_the_key_that_was_sent(key: str, value: Any) -> None:
    assert read_flat({key: value}) == (NO_HINTS, [key])


def test_nested_hints_are_read_from_one_dict() -> None:
    reader = NestedHints(lambda key: pytest.fail(key))
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
def test_a_bad_nested_hint_is_counted(given: Any, counted: str) -> None:
    ignored: list[str] = []
    assert NestedHints(ignored.append).read({"adaptive_spec": given}) == NO_HINTS
    assert ignored == [counted]


def test_labels_without_end_take_no_memory() -> None:
    numbers = RecentNumbers(3)
    assert [numbers.of(label) for label in "abcdea"] == [0, 1, 2, 3, 4, 5]
    assert [numbers.knows(label) for label in "abcdea"] == [True, False, False, True, True, True]
