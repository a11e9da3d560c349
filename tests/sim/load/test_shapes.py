from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.arrivals import arriving, gamma_arrivals
from adaptive_spec.sim.load.records import requests_of
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.load.shapes import Piece, piecewise, random_bursts, reshaped

VALUE = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
PIECES = st.lists(st.builds(Piece, st.floats(0.01, 1e3), VALUE, VALUE), min_size=1, max_size=6)


def value_integral(pieces, time):
    total = 0.0
    for piece in pieces:
        within = min(time, piece.seconds)
        total += piece.start * within + (piece.end - piece.start) * within**2 / piece.seconds / 2
        time -= within
    return total


def shaped_times(acceptance, times, pieces):
    requests = arriving(requests_of(acceptance, seed=0), times)
    return np.array([request.arrival for request in reshaped(requests, pieces)])


@settings(deadline=None, max_examples=80)
@given(pieces=PIECES, share=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_an_arrival_comes_when_the_integral_of_the_factor_reaches_it(pieces, share):
    whole = value_integral(pieces, 1e9)
    base = np.sort(np.array(share)) * whole
    end = sum(piece.seconds for piece in pieces)
    requests = [
        Request(id=str(at), arrival=float(time), prompt_tokens=1, output_tokens=1)
        for at, time in enumerate(base)
    ]
    moved = list(reshaped(iter(requests), piecewise(pieces, repeat=False)))

    arrivals = [request.arrival for request in moved]
    assert arrivals == sorted(arrivals)
    for before, after in zip(base, arrivals, strict=False):
        assert 0 <= after <= end * (1 + 1e-9)
        assert value_integral(pieces, after) == pytest.approx(before, rel=1e-6, abs=1e-6 * whole)


def test_a_factor_of_one_changes_nothing(acceptance):
    times = list(islice(gamma_arrivals(5, 1.0, np.random.default_rng(0)), 500))

    shaped = shaped_times(acceptance, iter(times), iter([Piece(1e6, 1, 1)]))
    assert shaped == pytest.approx(times)


def test_a_ramp_of_a_poisson_process_has_the_rate_of_the_ramp(acceptance):
    pieces = [Piece(1000, 2, 22), Piece(500, 22, 22), Piece(500, 3, 3)]
    unit = gamma_arrivals(1, 1.0, np.random.default_rng(1))
    times = shaped_times(acceptance, unit, iter(pieces))

    for begin, end, expected in ((0, 100, 300), (900, 1000, 2100), (1000, 1500, 11_000)):
        count = ((times >= begin) & (times < end)).sum()
        assert count == pytest.approx(expected, abs=5 * expected**0.5)
    assert ((times >= 1500) & (times < 2000)).sum() == pytest.approx(1500, abs=200)
    assert times[-1] < 2000


def test_nothing_arrives_in_a_piece_at_zero_and_the_load_goes_on_after_it(acceptance):
    unit = gamma_arrivals(1, 1.0, np.random.default_rng(0))
    pieces = [Piece(10, 20, 20), Piece(10, 0, 0), Piece(10, 20, 20)]
    times = shaped_times(acceptance, unit, iter(pieces))

    assert not ((times > 10) & (times < 20)).any()
    assert (times > 20).sum() == pytest.approx(200, abs=75)


def test_repeated_pieces_go_on(acceptance):
    unit = gamma_arrivals(1, 1.0, np.random.default_rng(0))
    pieces = piecewise([Piece(9, 1, 1), Piece(1, 50, 50)], repeat=True)
    requests = arriving(requests_of(acceptance, seed=0), unit)
    times = np.array([request.arrival for request in islice(reshaped(requests, pieces), 5000)])

    in_burst = (times % 10) >= 9
    assert in_burst.mean() == pytest.approx(50 / 59, abs=0.03)
    assert times[-1] == pytest.approx(5000 / 5.9, rel=0.1)


def test_a_gamma_process_stays_as_bursty_at_each_rate(acceptance):
    base = gamma_arrivals(1, 3, np.random.default_rng(0))
    times = shaped_times(acceptance, base, iter([Piece(1000, 20, 20), Piece(1000, 5, 5)]))

    for begin, rate in ((0, 20), (1000, 5)):
        intervals = np.diff(times[(times >= begin) & (times < begin + 1000)])
        assert intervals.mean() * rate == pytest.approx(1, rel=0.15)
        assert intervals.std() / intervals.mean() == pytest.approx(3, rel=0.2)


def test_random_bursts_take_their_share_of_time():
    pieces = list(islice(random_bursts(90, 10, 8, np.random.default_rng(0)), 4000))
    burst = sum(piece.seconds for piece in pieces if piece.start == 8)

    assert burst / sum(piece.seconds for piece in pieces) == pytest.approx(0.1, abs=0.01)


def test_shapes_that_never_let_anything_arrive_are_refused():
    with pytest.raises(ConfigError, match="at least one piece"):
        piecewise([], repeat=False)
    with pytest.raises(ConfigError, match="above 0"):
        piecewise([Piece(1, 0, 0)], repeat=True)
    with pytest.raises(ConfigError, match="more than 0 seconds"):
        Piece(0, 1, 1)
    with pytest.raises(ConfigError, match="0 or more"):
        Piece(1, -1, 1)
