"""Recovery after a change, and several seeds taken together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.sim.results.result import Percentiles, Result, best_static_ks, mean_and_spread
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


@pytest.mark.parametrize(
    "speeds",
    [
        pytest.param([190] * 500, id="never fast"),
        pytest.param([200] * 100 + [150] * 400, id="fast for a while only"),
        pytest.param([200] * (WINDOW - 1), id="shorter than the window"),
    ],
)
def test_who_does_not_stay_fast_has_not_recovered(speeds):
    found = recovery_of(segment(speeds), FIXED)
    assert (found.steps, found.seconds) == (None, None)
    assert found.of_best_static == pytest.approx(sum(speeds) / len(speeds) / 200)


def test_nothing_emitted_is_nothing_to_compare():
    assert recovery_of(segment([0] * 10), FIXED) is None


def run(throughput: float) -> Result:
    nothing = Percentiles()
    return Result(
        **dict.fromkeys(("mean_k", "accepted_per_step", "seconds", "mean_batch", "kv_peak"), 0.0),
        **dict.fromkeys(("steps", "tokens", "requests", "rejected", "preemptions"), 0),
        policy="static",
        throughput_tok_s=throughput,
        ttft_ms=nothing,
        tpot_ms=nothing,
        goodput_req_s=None,
        mode_fraction={},
        decision_us=nothing,
        k_fraction={},
        fail_opens=0,
        simulation_seconds=0.0,
    )


def by_seed(*scores: tuple[float, ...]) -> list[list[Result]]:
    return [[run(score) for score in seed] for seed in scores]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        pytest.param([(1.0, 1.5, 1.3), (2.0, 3.0, 2.6), (1.0, 1.49, 1.31)], [1], id="ahead in all"),
        pytest.param(
            [(1.0, 1.5, 1.49), (1.0, 1.48, 1.51), (1.0, 1.5, 1.48)], [1, 2], id="places change"
        ),
        pytest.param([(1.0, 1.2, 1.1), (5.0, 6.0, 5.5), (0.2, 0.24, 0.22)], [1], id="shared luck"),
        pytest.param([(1.0, 1.2, 1.1999)], [1], id="one seed"),
    ],
)
def test_fixed_k_that_are_best_over_seeds(scores: list[tuple[float, ...]], best: list[int]) -> None:
    assert best_static_ks(by_seed(*scores), closed=True) == best


def test_spread_is_half_the_range_and_missing_figures_are_no_mean() -> None:
    runs = [run(score) for score in (1.0, 2.0, 4.0)]
    mean, spread = mean_and_spread(runs, lambda each: each.throughput_tok_s) or (0.0, 0.0)
    assert (mean, spread) == (pytest.approx(7 / 3), 1.5)
    assert mean_and_spread(runs, lambda each: each.goodput_req_s) is None
