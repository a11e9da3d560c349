"""Several seeds taken together."""

import pytest

from adaptive_spec.sim.result import Percentiles, Result, best_static_ks, mean_and_spread


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
