from __future__ import annotations

import csv
import gzip
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.sim.load.arrivals import IntervalLaw
from adaptive_spec.sim.load.servegen import Client, client_arrivals, read_clients, spread

HEADER = "client,window_start_s,rate_rps,cv,iat_dist,shape,scale\n"
LAWS = st.sampled_from(list(IntervalLaw))


def sent(clients, seed=0):
    return client_arrivals(clients, np.random.default_rng(seed))


def written(path, rows):
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


@settings(deadline=None, max_examples=60)
@given(law=LAWS, shape=st.floats(0.01, 50), count=st.integers(1, 500), seed=st.integers(0, 99))
def test_times_in_a_window_ascend_and_stay_in_it(law, shape, count, seed):
    times = spread(law, shape, count, np.random.default_rng(seed))

    assert len(times) == count
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 1


@settings(deadline=None, max_examples=30)
@given(
    clients=st.lists(
        st.lists(st.tuples(st.floats(0, 0.2), LAWS, st.floats(0.05, 5)), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 99),
)
def test_merged_clients_ascend_and_send_as_many_as_their_rates_say(clients, seed):
    made = []
    for number, windows in enumerate(clients):
        client = Client()
        for at, (rate, law, shape) in enumerate(windows):
            client.add(600.0 * (at + number), rate, law, shape)
        made.append(client)
    arrivals = list(sent(made, seed))

    assert arrivals == sorted(arrivals)
    assert arrivals == [] or arrivals[0] >= 0
    expected = sum(600 * rate for windows in clients for rate, _, _ in windows)
    assert abs(len(arrivals) - expected) <= sum(map(len, clients))


@pytest.mark.parametrize(
    ("law", "shape", "cv"),
    [
        (IntervalLaw.EXPONENTIAL, 1.0, 1.0),
        (IntervalLaw.GAMMA, 0.25, 2.0),
        (IntervalLaw.GAMMA, 4.0, 0.5),
        (IntervalLaw.WEIBULL, 0.7, 1.4624),
    ],
)
def test_the_cv_of_a_clients_intervals_is_that_of_its_law(law, shape, cv):
    intervals = np.diff(spread(law, shape, 200_000, np.random.default_rng(0)))

    assert intervals.std() / intervals.mean() == pytest.approx(cv, rel=0.03)


def test_without_a_shape_gamma_takes_it_from_the_cv(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("client,window_start_s,rate_rps,cv,iat_dist\na,0,100,3,Gamma\n")
    intervals = np.diff(list(sent(read_clients(path))))

    assert intervals.std() / intervals.mean() == pytest.approx(3, rel=0.1)


def test_same_seed_same_arrivals_other_seed_others(tmp_path):
    path = written(tmp_path / "rates.csv", ["a,0,1,2,Gamma,.25,1", "b,0,1,1,Weibull,.7,1"])
    first, again, other = (list(sent(read_clients(path), seed)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_a_real_window_has_the_total_rate_of_the_source(data):
    with (data / "load/servegen_total_rate_by_window.csv").open() as file:
        totals = {
            float(row["window_start_s"]): float(row["rate_rps"])
            for row in csv.DictReader(file)
            if row["model"] == "m-small"
        }
    clients = read_clients(data / "load/servegen_m-small_client_rates.csv.gz")
    arrived = itertools.takewhile(lambda time: time < 1200, sent(clients))
    counts = Counter(int(time // 600) for time in arrived)

    begin = min(client.first_start for client in clients)
    for window, start in enumerate((begin, begin + 600)):
        assert counts[window] / 600 == pytest.approx(totals[start], rel=0.005)


def test_the_whole_table_is_read_packed(data):
    path = data / "load/servegen_deepseek-r1_client_rates.csv.gz"
    with gzip.open(path, "rt") as file:
        rows = sum(1 for _ in file) - 1

    assert sum(len(client) for client in read_clients(path)) == rows
