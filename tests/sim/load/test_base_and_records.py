from __future__ import annotations

import math
from itertools import islice

import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.base import ClosedLoad, OpenLoad
from adaptive_spec.sim.load.request import UNKNOWN_PROMPT_TOKENS, requests_of


def test_a_pass_takes_every_record_once_as_it_is(acceptance):
    requests = list(requests_of(acceptance, seed=1, endless=False))

    assert sorted(request.record for request in requests) == [0, 1, 2]
    for request in requests:
        assert request.output_tokens == acceptance.lengths[request.record]
        assert request.task == acceptance.labels[request.record]
        assert request.temperature == 0.5
    prompts = {request.record: request.prompt_tokens for request in requests}
    assert prompts == {0: UNKNOWN_PROMPT_TOKENS, 1: 40, 2: 70}


def test_passes_differ_in_order_and_ids_are_unique(acceptance):
    requests = list(islice(requests_of(acceptance, seed=0), 90))
    orders = {tuple(r.record for r in requests[at : at + 3]) for at in range(0, 90, 3)}

    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(orders) > 1
    assert len({request.id for request in requests}) == 90


def test_a_task_picks_its_records_and_an_unknown_one_takes_all(acceptance):
    def tasks(task):
        return {r.task for r in islice(requests_of(acceptance, seed=0, task=task), 30)}

    assert tasks("prose") == {"prose"}
    assert tasks("poetry") == {"code", "prose"}


def test_same_seed_same_requests_other_seed_others(acceptance):
    first, again, other = (
        list(islice(requests_of(acceptance, seed=seed), 60)) for seed in (3, 3, 4)
    )

    assert first == again
    assert first != other


def test_an_open_load_hands_out_everything_whatever_finishes(acceptance):
    load = OpenLoad(requests_of(acceptance, seed=0, endless=False))
    taken = []
    while load.next_arrival() < math.inf:
        taken.append(load.take_request())

    assert len(taken) == 3


def test_a_closed_load_keeps_so_many_under_way_and_arrivals_never_go_back(acceptance):
    load = ClosedLoad(requests_of(acceptance, seed=0), 2)
    first, second = load.take_request(), load.take_request()

    assert (first.arrival, second.arrival) == (0.0, 0.0)
    assert load.next_arrival() == math.inf
    load.finished(second, 1.5)
    load.finished(first, 2.5)
    assert [load.take_request().arrival, load.take_request().arrival] == [1.5, 2.5]
    assert load.next_arrival() == math.inf


def test_a_closed_load_ends_with_its_requests(acceptance):
    load = ClosedLoad(requests_of(acceptance, seed=0, endless=False), 2)
    load.take_request()
    load.finished(load.take_request(), 1.0)
    load.finished(load.take_request(), 2.0)

    assert load.next_arrival() == math.inf


def test_a_closed_load_without_clients_is_refused(acceptance):
    with pytest.raises(ConfigError, match="at least one client"):
        ClosedLoad(requests_of(acceptance, seed=0), 0)
