from __future__ import annotations

import math

import pytest

from adaptive_spec.adapters.vllm.clock import MAX_GAP_SECONDS, StepClock


def test_steps_that_follow_each_other_are_timed_from_completion_to_completion() -> None:
    clock = StepClock()
    first = clock.scheduled(10.0)
    assert clock.completed(first, 10.5) == pytest.approx(0.5)
    second = clock.scheduled(10.51)  # 10 ms of output handling belong to the step
    assert clock.completed(second, 11.0) == pytest.approx(0.5)


def test_a_pause_is_not_part_of_a_step() -> None:
    clock = StepClock()
    clock.completed(clock.scheduled(10.0), 10.5)
    after_pause = clock.scheduled(20.0)
    assert clock.completed(after_pause, 20.25) == pytest.approx(0.25)


def test_overlapping_steps_are_not_counted_twice() -> None:
    clock = StepClock()
    first = clock.scheduled(10.0)
    second = clock.scheduled(10.01)
    assert clock.completed(first, 10.5) == pytest.approx(0.5)
    third = clock.scheduled(10.51)
    assert clock.completed(second, 11.0) == pytest.approx(0.5)
    assert clock.completed(third, 11.4) == pytest.approx(0.4)


def test_a_step_scheduled_while_another_runs_is_never_idle() -> None:
    clock = StepClock()
    clock.completed(clock.scheduled(0.0), 1.0)
    first = clock.scheduled(5.0)
    second = clock.scheduled(5.0 + 10 * MAX_GAP_SECONDS)
    assert clock.completed(first, 6.0) == pytest.approx(1.0)
    assert clock.completed(second, 7.0) == pytest.approx(1.0)


def test_a_clock_that_stands_or_jumps_back_gives_no_sample() -> None:
    clock = StepClock()
    clock.completed(clock.scheduled(10.0), 10.5)
    assert math.isnan(clock.completed(clock.scheduled(10.5), 10.5))
    assert math.isnan(clock.completed(clock.scheduled(10.5), 9.0))
