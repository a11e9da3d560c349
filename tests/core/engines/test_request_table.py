"""Rows of request constants: read before a slot is assigned, and nothing of an earlier owner."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.engines.hints import NO_CAP, Hints
from adaptive_spec.engines.request_table import RequestConstants, RequestTable
from adaptive_spec.per_request import RequestSlots

COLUMNS = ("draft_cap", "tpot_target", "task", "temperature", "prompt_tokens", "most_output")


def row_of(table: RequestTable, name: str) -> list[Any]:
    rows = table.rows_of([name], [None])
    return [getattr(rows, column).item() for column in COLUMNS]


def given_constants(request: Any) -> RequestConstants:
    constants: RequestConstants = request
    return constants


def test_what_an_adapter_does_not_read_keeps_its_fill() -> None:
    table = RequestTable(RequestSlots(), given_constants)
    table.enter("a", RequestConstants(temperature=0.5))
    assert row_of(table, "a") == [NO_CAP, math.inf, -1, 0.5, 0, NO_CAP]


def test_a_known_request_is_not_read_again() -> None:
    reads: list[Any] = []

    def read(request: Any) -> RequestConstants:
        reads.append(request)
        return RequestConstants()

    table = RequestTable(RequestSlots(), read)
    assert table.slot_of("a", 1) == table.slot_of("a", 2)
    assert reads == [1]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=200))
def test_no_row_shows_an_earlier_owner(events: list[tuple[int, int, bool]]) -> None:
    """Requests come, go, and fail to be read; who has a slot has its own row."""
    slots = RequestSlots()

    def read(request: Any) -> RequestConstants:
        return RequestConstants(Hints(request.cap, 1.0 + request.cap, request.cap), 0.1, 7, 8)

    table = RequestTable(slots, read)
    drafted = table.add_column(0)
    caps: dict[str, int] = {}
    for number, cap, readable in events:
        name = str(number)
        if name in caps:
            slots.release(name)
            del caps[name]
            continue
        request = SimpleNamespace(cap=cap) if readable else SimpleNamespace()
        if not readable:
            table.slot_of(name, request)
            if name not in caps:
                assert slots.unreadable
                assert row_of(table, name) == [NO_CAP, math.inf, -1, 0.0, 0, NO_CAP]
                slots.release(name)
            continue
        row = np.array([table.slot_of(name, request)])
        assert drafted[row] == 0
        drafted[row] = 1 + cap
        caps[name] = cap
    for name, cap in caps.items():
        assert row_of(table, name) == [cap, 1.0 + cap, cap, 0.1, 7, 8]
        assert drafted[np.array([slots.assign(name)])] == 1 + cap


def test_rows_grow_with_the_requests_alive() -> None:
    table = RequestTable(RequestSlots(), given_constants)
    requests = [RequestConstants(most_output=number) for number in range(500)]
    rows = table.rows_of(list(map(str, range(500))), requests)
    assert rows.most_output.tolist() == list(range(500))
    assert table.rows_of(list(map(str, range(500))), requests) is rows


def test_stopping_drafts_counts_only_requests_that_had_any() -> None:
    table = RequestTable(RequestSlots(), given_constants)
    capped = table.enter("capped", RequestConstants(Hints(draft_cap=0)))
    free = table.enter("free", RequestConstants())
    both = np.array([capped, free])
    assert table.stop_drafting(both) == 1
    assert table.stop_drafting(both) == 0
    rows = table.rows_of(["capped", "free"], [None, None])
    assert rows.draft_cap.tolist() == [0, 0]
    assert rows.copied_cap.tolist() == [0, NO_CAP], "copies need no drafter"
    assert table.stop_drafting(np.array([], dtype=np.int64)) == 0


def test_a_clients_cap_makes_drafting_shallower_for_nobody_else() -> None:
    slots = RequestSlots()
    table = RequestTable(slots, given_constants)
    caps = {"a": 1, "b": 3, "c": 0}
    requests = [RequestConstants(Hints(cap, math.inf, -1), 0.0, 7, 8) for cap in caps.values()]
    assert table.rows_of(list(caps), requests).depth_cap(5).tolist() == [3, 3, 0]
    assert table.rows_of(["a"], requests[:1]).depth_cap(5).tolist() == [1]


def test_requests_that_lose_the_drafter_are_counted_until_they_end() -> None:
    slots = RequestSlots()
    table = RequestTable(slots, given_constants)
    rows = np.array([table.enter(name, RequestConstants()) for name in "ab"])
    assert table.stop_drafting(rows) == 2
    assert len(slots.without_drafter) == 2
    slots.release("a")
    assert len(slots.without_drafter) == 1
