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
from adaptive_spec.sim.load.quantile_lengths import FIELDS, read_quantile_lengths
from adaptive_spec.sim.load.servegen import Client, read_clients, servegen_requests, spread

HEADER = "client,window_start_s,rate_rps,cv,iat_dist,shape,scale\n"
LAWS = st.sampled_from(list(IntervalLaw))


class Fixed:
    """Every request alike."""

    def pairs(self, random):
        return itertools.repeat((100, 20))


LENGTHS = Fixed()


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
        client = Client(str(number))
        for at, (rate, law, shape) in enumerate(windows):
            client.add(600.0 * (at + number), rate, law, shape)
        made.append(client)
    requests = list(servegen_requests(made, {}, LENGTHS, seed=seed))

    arrivals = [request.arrival for request in requests]
    assert arrivals == sorted(arrivals)
    assert len({request.id for request in requests}) == len(requests)
    sent = Counter(request.tenant for request in requests)
    for number, windows in enumerate(clients):
        assert abs(sent[f"client-{number}"] - sum(600 * rate for rate, _, _ in windows)) <= len(
            windows
        )


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
    requests = servegen_requests(read_clients(path), {}, LENGTHS, seed=0)
    intervals = np.diff([request.arrival for request in requests])

    assert intervals.std() / intervals.mean() == pytest.approx(3, rel=0.1)


def test_same_seed_same_requests_other_seed_others(tmp_path):
    path = written(tmp_path / "rates.csv", ["a,0,1,2,Gamma,.25,1", "b,0,1,1,Weibull,.7,1"])
    first, again, other = (
        list(servegen_requests(read_clients(path), {}, LENGTHS, seed=seed)) for seed in (1, 1, 2)
    )

    assert first == again
    assert first != other


def test_lengths_follow_the_quantiles_and_the_mean(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text(
        "client,field,sum_rate_rps_over_windows,windows,mean,q1,q50,q99,q100\n"
        "a,input_tokens,3,1,140,10,100,200,10000\n"
        "a,output_tokens,3,1,7,7,7,7,7\n"
    )
    each, _ = read_quantile_lengths(path)
    pairs = each["a"].pairs(np.random.default_rng(0))
    prompts, outputs = np.array([next(pairs) for _ in range(200_000)]).T

    assert set(outputs) == {7}
    assert np.quantile(prompts, 0.5) == pytest.approx(100, rel=0.02)
    assert np.quantile(prompts, 0.985) == pytest.approx(199, rel=0.02)
    assert prompts.max() > 5000
    assert prompts.mean() == pytest.approx(140, rel=0.03)


def test_clients_without_quantiles_draw_from_all_in_proportion_to_rate(tmp_path):
    path = tmp_path / "lengths.csv"
    rows = [
        f"{client},{field},{rate},1,{length},{length},{length}\n"
        for client, rate, length in (("a", 3, 10), ("b", 1, 50))
        for field in FIELDS
    ]
    path.write_text("client,field,sum_rate_rps_over_windows,windows,mean,q1,q100\n" + "".join(rows))
    _, pooled = read_quantile_lengths(path)
    pairs = pooled.pairs(np.random.default_rng(0))
    counts = Counter(next(pairs) for _ in range(20_000))

    assert set(counts) == {(10, 10), (50, 50)}
    assert counts[10, 10] / 20_000 == pytest.approx(0.75, abs=0.02)


def test_a_real_window_has_the_total_rate_of_the_source(data):
    with (data / "load/servegen_total_rate_by_window.csv").open() as file:
        totals = {
            float(row["window_start_s"]): float(row["rate_rps"])
            for row in csv.DictReader(file)
            if row["model"] == "m-small"
        }
    clients = read_clients(data / "load/servegen_m-small_client_rates.csv.gz")
    requests = servegen_requests(clients, {}, LENGTHS, seed=0)
    arrived = itertools.takewhile(lambda request: request.arrival < 1200, requests)
    counts = Counter(int(request.arrival // 600) for request in arrived)

    begin = min(client.first_start for client in clients)
    for window, start in enumerate((begin, begin + 600)):
        assert counts[window] / 600 == pytest.approx(totals[start], rel=0.005)


@pytest.mark.parametrize("model", ["m-small", "m-mid", "m-large", "deepseek-r1"])
def test_real_length_tables_keep_the_mean_of_the_source(data, model):
    path = data / f"load/servegen_{model}_length_quantiles.csv"
    each, _ = read_quantile_lengths(path)
    with path.open() as file:
        means = {(row["client"], row["field"]): float(row["mean"]) for row in csv.DictReader(file)}
    errors = []
    for client, lengths in each.items():
        pairs = lengths.pairs(np.random.default_rng(0))
        drawn = np.array([next(pairs) for _ in range(4096)])
        for field, values in zip(FIELDS, drawn.T, strict=True):
            errors.append(values.mean() / means[client, field] - 1)

    # The tail carries much of the mean, so a sample of 4,096 scatters.
    assert abs(np.median(errors)) < 0.02


def test_the_whole_table_is_read_packed(data):
    path = data / "load/servegen_deepseek-r1_client_rates.csv.gz"
    with gzip.open(path, "rt") as file:
        rows = sum(1 for _ in file) - 1

    assert sum(len(client) for client in read_clients(path)) == rows
