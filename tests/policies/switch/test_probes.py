"""Probes come at the times of the law, within their budget."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.switch.probes import ProbeSchedule


def begun(*, step: float = 0.01, gain: float = 0.3, now: float = 0.0) -> ProbeSchedule:
    schedule = ProbeSchedule()
    schedule.probe_cost = step
    schedule.begin(now, 8, gain, afresh=True)
    return schedule


@given(
    cost=st.floats(0.01, 1.0),
    gain=st.floats(0.05, 0.5),
    off=st.floats(0.0, 3600.0),
    more=st.floats(1.1, 10.0),
)
def test_probes_are_rarer_the_dearer_and_the_longer_off(
    cost: float, gain: float, off: float, more: float
) -> None:
    schedule, dearer = begun(step=cost), begun(step=more * cost)
    assert schedule.by_law(off, gain) == pytest.approx(math.sqrt(2.0 * cost * (60.0 + off) / gain))
    assert dearer.by_law(off, gain) > schedule.by_law(off, gain)
    assert schedule.by_law(more * (off + 1.0), gain) > schedule.by_law(off, gain)
    assert schedule.by_law(off, more * gain) < schedule.by_law(off, gain)


def test_a_probe_is_due_once_its_time_has_come_and_not_before() -> None:
    schedule = begun()
    assert not schedule.due(0.5 * schedule.next_probe)
    assert schedule.due(schedule.next_probe)


def test_all_probes_together_stay_within_their_budget() -> None:
    schedule = begun(step=0.001)
    now = 0.0
    for _ in range(50):
        now = schedule.next_probe
        assert schedule.due(now)
        schedule.probed(now, 0.02, 0.3)
    assert 0.01 * now >= 50 * 0.02


def test_a_dear_probe_waits_for_its_budget_but_for_a_minute_at_most() -> None:
    assert begun(step=0.08).next_probe == pytest.approx(0.08 / 0.002)
    assert begun(step=0.35).next_probe == pytest.approx(60.0)


def test_a_clock_that_jumped_back_makes_a_probe_due() -> None:
    schedule = begun(now=1e6)
    assert schedule.due(0.0)


def test_a_load_half_or_twice_as_large_is_another_one() -> None:
    schedule = begun()
    assert [schedule.another_load(load) for load in (4, 5, 8, 15, 16)] == [
        True,
        False,
        False,
        False,
        True,
    ]


def test_a_probe_brought_forward_keeps_its_distance_from_the_last() -> None:
    schedule = begun()
    schedule.probed(100.0, 0.5, 0.3)
    late = schedule.next_probe
    schedule.bring_forward(100.1, 32)
    assert 100.1 < schedule.next_probe <= late
    schedule.bring_forward(1000.0, 8)
    assert schedule.next_probe <= late
