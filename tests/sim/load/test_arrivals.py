from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.arrivals import (
    Piece,
    arriving,
    gamma_arrivals,
    piecewise,
    random_bursts,
    reshaped,
    sliced,
)
from adaptive_spec.sim.load.request import Request, requests_of

VALUE = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
PIECES = st.lists(st.builds(Piece, st.floats(0.01, 1e3), VALUE, VALUE), min_size=1, max_size=6)


def times_of(rate, cv, count, seed=0):
    return np.array(list(islice(gamma_arrivals(rate, cv, np.random.default_rng(seed)), count)))


@settings(deadline=None, max_examples=25)
@given(rate=st.floats(0.01, 1e4), cv=st.floats(0.1, 4), seed=st.integers(0, 1 << 30))
def test_arrivals_ascend_with_the_rate_and_cv_asked_for(rate, cv, seed):
    intervals = np.diff(times_of(rate, cv, 8000, seed))

    assert (intervals >= 0).all()
    # Six standard errors of the mean; the CV of a heavy law converges more slowly.
    assert intervals.mean() * rate == pytest.approx(1, abs=6 * cv / np.sqrt(8000))
    assert intervals.std() / intervals.mean() == pytest.approx(cv, rel=0.25)


def test_bursty_arrivals_are_as_many_as_the_rate_says_from_the_start():
    # Without the length-biased first interval there would be 10 + (CV^2 - 1) / 2 = 17.5 of them.
    counts = [sum(time < 10 for time in times_of(1.0, 4.0, 400, seed)) for seed in range(2000)]

    error = np.std(counts) / np.sqrt(len(counts))
    assert np.mean(counts) == pytest.approx(10, abs=5 * error)
    assert 5 * error < 4


def test_poisson_counts_have_a_variance_like_their_mean():
    times = np.array(list(islice(gamma_arrivals(3.0, 1.0, np.random.default_rng(1)), 30_000)))
    counts = np.bincount(times.astype(int))[:-1]

    assert counts.mean() == pytest.approx(3, rel=0.05)
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(
    ("rate", "cv"), [(0, 1), (-1, 1), (1, 0), (1, -2), (1, 1e-9), (float("inf"), 1)]
)
def test_rate_and_cv_outside_their_ranges_are_refused(rate, cv):
    with pytest.raises(ConfigError, match="must be"):
        gamma_arrivals(rate, cv, np.random.default_rng(0))


def test_same_seed_same_arrivals():
    assert (times_of(2, 3, 3000, 5) == times_of(2, 3, 3000, 5)).all()
    assert (times_of(2, 3, 3000, 5) != times_of(2, 3, 3000, 6)).any()


def test_a_slice_keeps_what_arrives_in_it_and_plays_it_faster(acceptance):
    def stream():
        return arriving(requests_of(acceptance, seed=0), iter(float(at) for at in range(100)))

    kept = list(sliced(stream(), skip=10, first=20, rate=4))

    assert [request.arrival for request in kept] == [at / 4 for at in range(20)]
    assert [each.id for each in kept] == [str(at) for at in range(10, 30)]
    assert all(a.arrival <= b.arrival for a, b in pairwise(kept))


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
