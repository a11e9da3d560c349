"""Several seeds taken together."""

import pytest

from adaptive_spec.sim.results.result import Percentiles, Result, best_static_ks, mean_and_spread


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


def test_a_k_that_is_ahead_in_every_seed_is_the_only_best() -> None:
    static = by_seed((1.0, 1.5, 1.3), (2.0, 3.0, 2.6), (1.0, 1.49, 1.31))
    assert best_static_ks(static, closed=True) == [1]


def test_two_that_change_places_are_not_told_apart() -> None:
    static = by_seed((1.0, 1.5, 1.49), (1.0, 1.48, 1.51), (1.0, 1.5, 1.48))
    assert best_static_ks(static, closed=True) == [1, 2]


def test_luck_that_all_k_share_hides_nothing() -> None:
    luck = (1.0, 5.0, 0.2)
    static = by_seed(*(tuple(each * score for score in (1.0, 1.2, 1.1)) for each in luck))
    assert best_static_ks(static, closed=True) == [1]


def test_one_seed_gives_its_best() -> None:
    assert best_static_ks(by_seed((1.0, 1.2, 1.1999)), closed=True) == [1]


def test_spread_is_half_the_range_and_missing_figures_are_no_mean() -> None:
    runs = [run(score) for score in (1.0, 2.0, 4.0)]
    mean, spread = mean_and_spread(runs, lambda each: each.throughput_tok_s) or (0.0, 0.0)
    assert (mean, spread) == (pytest.approx(7 / 3), 1.5)
    assert mean_and_spread(runs, lambda each: each.goodput_req_s) is None
