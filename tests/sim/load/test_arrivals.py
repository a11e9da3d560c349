from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.arrivals import (
    IntervalLaw,
    arriving,
    gamma_arrivals,
    gamma_shape,
    unit_intervals,
)
from adaptive_spec.sim.load.records import requests_of
from adaptive_spec.sim.load.shapes import sliced


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


@pytest.mark.parametrize(
    ("law", "shape", "cv"),
    [
        (IntervalLaw.EXPONENTIAL, 1.0, 1.0),
        (IntervalLaw.GAMMA, gamma_shape(2.0), 2.0),
        (IntervalLaw.WEIBULL, 2.0, 0.5227),
        (IntervalLaw.WEIBULL, 0.5, 2.2361),
    ],
)
def test_intervals_have_mean_one_and_the_cv_of_their_law(law, shape, cv):
    times = unit_intervals(law, shape, 400_000, np.random.default_rng(0))

    assert times.mean() == pytest.approx(1, abs=0.02)
    assert times.std() == pytest.approx(cv, rel=0.03)


def test_a_slice_keeps_what_arrives_in_it_and_plays_it_faster(acceptance):
    def stream():
        return arriving(requests_of(acceptance, seed=0), iter(float(at) for at in range(100)))

    kept = list(sliced(stream(), skip=10, first=20, rate=4))

    assert [request.arrival for request in kept] == [at / 4 for at in range(20)]
    assert [each.id for each in kept] == [str(at) for at in range(10, 30)]
    assert all(a.arrival <= b.arrival for a, b in pairwise(kept))
