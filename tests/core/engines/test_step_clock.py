"""Durations of steps that overlap, pause, or share the engine with other work."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.engines.driver import MAX_GAP_SECONDS, StepClock


@pytest.mark.parametrize(
    ("launched", "under_way", "between", "completed", "seconds"),
    [
        # 10 ms of output handling belong to the step.
        pytest.param(10.51, 0, None, 11.0, 0.5, id="in a row"),
        pytest.param(20.0, 0, None, 20.25, 0.25, id="after a pause"),
        pytest.param(10.51, 1, lambda c: c.other_work_ended(12.0), 12.25, 0.25, id="prompts"),
        pytest.param(10.5, 0, None, 10.5, math.nan, id="the clock stands"),
        pytest.param(9.0, 1, None, 9.5, math.nan, id="the clock jumps back"),
    ],
)
def test_a_step_is_timed_from_the_completion_before_it(
    launched: float,
    under_way: int,
    between: Callable[[StepClock], None] | None,
    completed: float,
    seconds: float,
) -> None:
    clock = StepClock()
    assert clock.completed(clock.launched(10.0, under_way=0), 10.5) == pytest.approx(0.5)
    began = clock.launched(launched, under_way=under_way)
    if between is not None:
        between(clock)
    assert clock.completed(began, completed) == pytest.approx(seconds, nan_ok=True)


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
