"""Recovery after a change: when throughput is back at the best fixed K's, and what it cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.sim.results.segments import WINDOW_REQUEST_STEPS, Segment, Segments, recovery_of

CLIENTS = 100
WINDOW = WINDOW_REQUEST_STEPS // CLIENTS


def segment(speeds: list[int], change: float = 10.0) -> Segment:
    """Steps of .01 s that emit so many tokens each, after a step before the change."""
    segments = Segments([change])
    segments.step(change - 1.0, 1.0, CLIENTS, 999)
    for number, tokens in enumerate(speeds, start=1):
        segments.step(change + 0.01 * number, 0.01, CLIENTS, tokens)
    (found,) = segments.finished()
    return found


FIXED = [segment([100] * 500), segment([200] * 500)]


def test_a_segment_counts_what_happened_after_its_change_only():
    found = segment([100] * 500)
    assert found.tokens == 50_000
    assert found.seconds == pytest.approx(5.0)
    assert found.throughput == pytest.approx(10_000)


def test_each_change_begins_a_segment_and_ends_the_one_before():
    segments = Segments([1.0, 2.0])
    for number in range(1, 31):
        segments.step(0.1 * number, 0.1, 1, number)
    first, second = segments.finished()
    assert (first.at, second.at) == (1.0, 2.0)
    assert first.tokens == sum(range(11, 21))
    assert second.tokens == sum(range(21, 31))


def test_a_change_that_the_run_never_reached_has_no_segment():
    segments = Segments([1.0, 50.0])
    segments.step(2.0, 1.0, 1, 5)
    assert [each.at for each in segments.finished()] == [1.0]


@given(st.integers(1, 30_000))
def test_blocks_lose_no_step_and_stay_few(steps):
    segments = Segments([1.0])
    for number in range(steps):
        segments.step(2.0 + number, 1.0, 2, 3)
    (found,) = segments.finished()
    assert sum(found.block_steps) == steps
    assert sum(found.block_tokens) == found.tokens == 3 * steps
    assert sum(found.block_requests) == 2 * steps
    assert len(found.block_steps) <= 450


def test_who_is_fast_from_the_start_has_recovered_at_once():
    found = recovery_of(segment([198] * 500), FIXED)
    assert (found.best_static_k, found.steps, found.seconds) == (1, 0, 0.0)


def test_recovery_is_the_beginning_of_the_first_fast_window():
    slow = 100
    found = recovery_of(segment([100] * slow + [200] * 900), FIXED)
    # A window of which less than 6 % is slow passes too: it loses 3 %.
    assert slow - 0.06 * WINDOW - 3 <= found.steps <= slow
    assert found.seconds == pytest.approx(0.01 * found.steps)
    assert found.lost_seconds == pytest.approx(0.01 * slow / 2)


def test_who_never_gets_fast_has_not_recovered():
    found = recovery_of(segment([190] * 500), FIXED)
    assert (found.steps, found.seconds) == (None, None)
    assert found.of_best_static == pytest.approx(0.95)


def test_who_is_fast_for_a_while_only_has_not_recovered():
    assert recovery_of(segment([200] * 100 + [150] * 400), FIXED).steps is None


def test_a_segment_shorter_than_the_window_shows_no_recovery():
    assert recovery_of(segment([200] * (WINDOW - 1)), FIXED).steps is None


def test_nothing_emitted_is_nothing_to_compare():
    assert recovery_of(segment([0] * 10), FIXED) is None
