from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.arrivals import arriving, gamma_arrivals
from adaptive_spec.sim.load.base import ClosedLoad, OpenLoad, TenantMix
from adaptive_spec.sim.load.description import Tenant
from adaptive_spec.sim.load.request import (
    ANY_RECORD,
    LogNormalTokens,
    Request,
    drawn,
    requests_of,
    with_lengths,
)


def at(times):
    return OpenLoad(
        Request(id=str(number), arrival=time, prompt_tokens=1, output_tokens=2, task="old")
        for number, time in enumerate(times)
    )


def named(name, load, **settings):
    return Tenant(name=name, load="", **settings), load


@settings(deadline=None)
@given(
    tenants=st.lists(st.lists(st.floats(0, 100), max_size=20).map(sorted), min_size=1, max_size=5)
)
def test_requests_of_all_tenants_come_in_order_of_arrival(tenants):
    mix = TenantMix([named(str(number), at(times)) for number, times in enumerate(tenants)])
    taken = []
    while mix.next_arrival() < math.inf:
        taken.append(mix.take_request())

    assert [each.arrival for each in taken] == sorted(time for times in tenants for time in times)
    assert len({each.id for each in taken}) == len(taken)
    assert not mix.closed


def test_a_tenant_sets_name_task_target_and_temperature():
    mix = TenantMix([named("chat", at([0.0]), task="prose", tpot_ms=50, temperature=0.9)])
    request = mix.take_request()

    assert (request.id, request.task) == ("chat/0", "prose")
    assert (request.tpot_target, request.temperature) == (0.05, 0.9)


def test_what_a_tenant_does_not_set_stays(acceptance):
    request = TenantMix([named("a", ClosedLoad(requests_of(acceptance, seed=0), 1))]).take_request()

    assert request.task == acceptance.labels[request.record]
    assert (request.tpot_target, request.temperature) == (math.inf, 0.5)


def test_another_task_frees_a_request_from_its_record(acceptance):
    load = ClosedLoad(requests_of(acceptance, seed=0), 3)
    mix = TenantMix([named("a", load, task="prose")])
    records = {mix.take_request().record for _ in range(3)}

    assert records == {ANY_RECORD, 2}


def test_open_and_closed_tenants_share_a_server_and_mixes_nest(acceptance):
    closed = ClosedLoad(requests_of(acceptance, seed=0), 1)
    inner = TenantMix([named("closed", closed), named("open", at([1.0, 2.0]))])
    mix = TenantMix([named("outer", inner)])
    assert mix.closed
    first = mix.take_request()
    assert first.id == "outer/closed/0"

    assert mix.take_request().arrival == 1.0
    mix.finished(first, 1.5)
    assert mix.take_request().arrival == 1.5
    assert mix.take_request().arrival == 2.0
    assert mix.next_arrival() == math.inf


def test_tenants_need_distinct_names():
    with pytest.raises(ConfigError, match="two tenants are named 'a'"):
        TenantMix([named("a", at([])), named("a", at([]))])
    with pytest.raises(ConfigError, match="at least one tenant"):
        TenantMix([])


def test_log_normal_lengths_have_mean_cv_and_limit():
    law = LogNormalTokens(mean=500, cv=0.8)
    values = np.array(list(islice(drawn(law, np.random.default_rng(0)), 100_000)))
    capped = list(
        islice(drawn(LogNormalTokens(mean=500, cv=2, most=600), np.random.default_rng(0)), 1000)
    )

    assert values.mean() == pytest.approx(500, rel=0.02)
    assert values.std() / values.mean() == pytest.approx(0.8, rel=0.03)
    assert values.min() >= 1
    assert max(capped) == 600


def test_lengths_replace_only_what_they_are_given_for(acceptance):
    requests = arriving(
        requests_of(acceptance, seed=0, endless=False),
        gamma_arrivals(1, 1.0, np.random.default_rng(0)),
    )
    changed = list(with_lengths(requests, 9, None, np.random.default_rng(0)))

    assert {request.prompt_tokens for request in changed} == {9}
    assert sorted(request.output_tokens for request in changed) == [5, 10, 20]
