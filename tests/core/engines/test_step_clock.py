"""Durations of steps that overlap, pause, or share the engine with other work."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.engines.driver import MAX_GAP_SECONDS, StepClock


def test_steps_in_a_row_are_timed_between_completions() -> None:
    clock = StepClock()
    assert clock.completed(clock.launched(10.0, under_way=0), 10.5) == pytest.approx(0.5)
    second = clock.launched(10.51, under_way=0)  # 10 ms of output handling belong to the step
    assert clock.completed(second, 11.0) == pytest.approx(0.5)


def test_a_pause_is_not_part_of_a_step() -> None:
    clock = StepClock()
    clock.completed(clock.launched(10.0, under_way=0), 10.5)
    after_pause = clock.launched(20.0, under_way=0)
    assert clock.completed(after_pause, 20.25) == pytest.approx(0.25)


def test_a_step_launched_while_another_runs_is_never_idle() -> None:
    clock = StepClock()
    clock.completed(clock.launched(0.0, under_way=0), 1.0)
    first = clock.launched(5.0, under_way=0)
    second = clock.launched(5.0 + 10 * MAX_GAP_SECONDS, under_way=1)
    assert clock.completed(first, 6.0) == pytest.approx(1.0)
    assert clock.completed(second, 7.0) == pytest.approx(1.0)


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=30), st.integers(0, 2))
def test_durations_of_a_busy_engine_add_up_to_the_time_that_passed(
    gaps: list[float], ahead: int
) -> None:
    """Whatever is scheduled ahead: no second is counted twice and none is lost."""
    clock, now, under_way = StepClock(), 100.0, [StepClock().launched(100.0, under_way=0)]
    for _ in range(ahead):
        under_way.append(clock.launched(now, under_way=len(under_way)))
    total = 0.0
    for gap in gaps:
        now += gap
        total += clock.completed(under_way.pop(0), now)
        under_way.append(clock.launched(now, under_way=len(under_way)))
    assert total == pytest.approx(sum(gaps))


def test_prompts_between_two_steps_are_not_counted_as_decoding() -> None:
    clock = StepClock()
    clock.completed(clock.launched(10.0, under_way=0), 10.5)
    began = clock.launched(10.51, under_way=1)
    clock.other_work_ended(12.0)
    assert clock.completed(began, 12.25) == pytest.approx(0.25)


def test_a_clock_that_stands_or_jumps_back_gives_no_sample() -> None:
    clock = StepClock()
    clock.completed(clock.launched(10.0, under_way=0), 10.5)
    assert math.isnan(clock.completed(clock.launched(10.5, under_way=0), 10.5))
    assert math.isnan(clock.completed(clock.launched(9.0, under_way=1), 9.5))


@pytest.mark.parametrize("under_way", [0, 1, 2])
def test_steps_across_an_interruption_give_no_sample(under_way: int) -> None:
    clock = StepClock()
    running = [clock.launched(1.0, under_way=number) for number in range(under_way)]
    clock.interrupted(under_way=under_way)
    for number, not_before in enumerate(running):
        assert math.isnan(clock.completed(not_before, 2.0 + number))
    assert math.isnan(clock.completed(clock.launched(30.0, under_way=0), 31.0))
    assert clock.completed(clock.launched(31.0, under_way=0), 31.5) == pytest.approx(0.5)


def test_after_a_reset_only_the_next_steps_own_work_counts() -> None:
    clock = StepClock()
    clock.completed(clock.launched(10.0, under_way=0), 10.5)
    clock.reset()
    assert clock.completed(clock.launched(10.51, under_way=0), 11.0) == pytest.approx(0.49)
