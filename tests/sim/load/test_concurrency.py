from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.load.arrivals import Piece
from adaptive_spec.sim.load.base import VaryingClosedLoad
from adaptive_spec.sim.load.request import requests_of


def served(load, seconds_each, until, seed=0):
    """Serve a load with service times of its own; (arrival, end) of each request, in order."""
    random = np.random.default_rng(seed)
    under_way: list[tuple[float, int]] = []
    taken = []
    spans = []
    while True:
        arrival = load.next_arrival()
        ends = under_way[0][0] if under_way else math.inf
        if min(arrival, ends) > until or min(arrival, ends) == math.inf:
            return spans
        if arrival <= ends:
            request = load.take_request()
            assert request.arrival == arrival
            end = arrival + seconds_each * random.uniform(0.5, 1.5)
            heapq.heappush(under_way, (end, len(spans)))
            taken.append(request)
            spans.append((arrival, end))
        else:
            now, number = heapq.heappop(under_way)
            load.finished(taken[number], now)


def under_way_at(spans, time):
    return sum(begin <= time < end for begin, end in spans)


def test_the_number_under_way_follows_a_ramp_a_step_down_and_a_pause(acceptance):
    pieces = [Piece(100, 1, 11), Piece(100, 3, 3), Piece(100, 0, 0), Piece(100, 6, 6)]
    spans = served(VaryingClosedLoad(requests_of(acceptance, seed=0), pieces), 1.0, 500)

    for time in np.arange(0.3, 100, 7):
        assert under_way_at(spans, time) == math.floor(1 + time / 10 + 0.5)
    assert [under_way_at(spans, time) for time in (102, 150, 199)] == [3, 3, 3]
    assert [under_way_at(spans, time) for time in (202, 299)] == [0, 0]
    assert [under_way_at(spans, time) for time in (300, 399)] == [6, 6]
    assert max(end for _, end in spans) < 402


def test_a_falling_ramp_lets_clients_leave_one_by_one(acceptance):
    spans = served(
        VaryingClosedLoad(requests_of(acceptance, seed=0), [Piece(100, 10, 0)]), 0.01, 200
    )

    for time in np.arange(0.4, 100, 6.3):
        expected = math.floor(10 - time / 10 + 0.5)
        assert abs(under_way_at(spans, time) - expected) <= 1


def test_repeated_pieces_go_on(acceptance):
    load = VaryingClosedLoad(
        requests_of(acceptance, seed=0), [Piece(10, 4, 4), Piece(10, 1, 1)], repeat=True
    )
    spans = served(load, 0.5, 1000)

    assert [under_way_at(spans, time) for time in (5, 15, 985, 995)] == [4, 1, 4, 1]


@settings(deadline=None, max_examples=60)
@given(
    pieces=st.lists(
        st.builds(Piece, st.floats(0.1, 20), st.floats(0, 9), st.floats(0, 9)),
        min_size=1,
        max_size=6,
    ),
    seconds_each=st.floats(0.05, 30),
    seed=st.integers(0, 99),
)
def test_arrivals_never_go_back_and_never_exceed_the_clients(
    acceptance_records, pieces, seconds_each, seed
):
    load = VaryingClosedLoad(requests_of(acceptance_records, seed=0), pieces)
    spans = served(load, seconds_each, 200, seed)
    arrivals = [begin for begin, _ in spans]
    most = max(math.floor(max(piece.start, piece.end) + 0.5) for piece in pieces)

    assert arrivals == sorted(arrivals)
    assert all(under_way_at(spans, time) <= most for time in arrivals)


@pytest.fixture(scope="module")
def acceptance_records():
    return AcceptanceData(
        name="one",
        source="made up",
        accepted=np.zeros(3, dtype=np.uint8),
        offsets=np.array([0, 3]),
        prompt_tokens=np.array([5]),
        labels=("",),
        depth=1,
    )


def test_a_load_that_starts_at_zero_clients_begins_when_the_first_comes(acceptance):
    load = VaryingClosedLoad(requests_of(acceptance, seed=0), [Piece(5, 0, 0), Piece(5, 2, 2)])

    assert load.next_arrival() == 5
    assert [load.take_request().arrival, load.take_request().arrival] == [5, 5]
    assert load.next_arrival() == math.inf


def test_it_ends_with_its_requests(acceptance):
    load = VaryingClosedLoad(requests_of(acceptance, seed=0, endless=False), [Piece(1e6, 2, 2)])

    assert len(served(load, 1.0, 1e5)) == 3


def test_pieces_without_any_client_cannot_repeat(acceptance):
    with pytest.raises(ConfigError, match="above 0"):
        VaryingClosedLoad(requests_of(acceptance, seed=0), [Piece(1, 0, 0)], repeat=True)
