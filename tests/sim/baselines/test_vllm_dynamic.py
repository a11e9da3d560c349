"""vLLM's first dynamic form: length over latency, interpolation, rates that never fade."""

from pathlib import Path
from typing import Any

from adaptive_spec import Level
from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine, linear, profile_file

NAME = "adaptive_spec.sim.baselines.engines.vllm_dynamic:VllmDynamicPolicy"
RATES = [0.68, 0.39, 0.20, 0.10, 0.06]


def rows(table: dict[int, dict[int, float]]) -> list[list[float]]:
    return [[batch, k, ms] for batch, ks in table.items() for k, ms in ks.items()]


TABLE = {
    1: {0: 6.9, 1: 8.0, 3: 9.4, 5: 10.8},
    16: {0: 7.3, 1: 8.4, 3: 10.0, 5: 11.6},
    64: {0: 8.5, 1: 15.4, 3: 25.2, 5: 37.5},
}


def dynamic(**options: Any) -> Any:
    return build_baseline(NAME, {"itl_ms": rows(TABLE), "acceptance": RATES, **options})


def chosen(batch: int, **options: Any) -> int:
    """With the rates of the configuration."""
    depth = TinyEngine(dynamic(**options), batch=batch).step().draft_depth
    assert isinstance(depth, int)
    return depth


def test_it_maximises_length_over_latency() -> None:
    lengths = [1.0, 1.68, 2.07, 2.27, 2.37, 2.43]
    latency = [6.9, 8.0, 8.7, 9.4, 10.1, 10.8]  # K = 2 and 4 lie between
    scores = [length / ms for length, ms in zip(lengths, latency, strict=True)]
    assert chosen(1) == scores.index(max(scores)) == 3


def test_batch_sizes_are_interpolated_and_beyond_the_measured_flat() -> None:
    # At 40, halfway: 7.9 ms at K = 0, 11.9 at 1, 14.75 at 2: 1 / 7.9 < 2.07 / 14.75 < 1.68 / 11.9.
    depths = [chosen(batch) for batch in (16, 24, 32, 40, 48, 56, 64, 500)]
    assert depths == sorted(depths, reverse=True)
    assert (depths[0], depths[3], depths[-2:]) == (3, 1, [0, 0])
    flat = [[1, 0, 10.0], [1, 1, 10.0], [1, 5, 10.0]]  # of equals the smaller K wins
    assert chosen(1, itl_ms=flat, acceptance=[0.5, 0.0, 0.0, 0.0, 0.0]) == 1
    fixed_depth = TinyEngine(dynamic(), batch=64, level=Level.VERIFY)
    assert fixed_depth.step().verify.tolist() == [0] * 64


def test_what_was_seen_replaces_the_configured_rates_after_the_warm_up() -> None:
    engine = TinyEngine(dynamic(), accepts=5, batch=1)
    assert engine.run(10) == [3] * 10
    # Now 3 of 3 are known to be accepted; position 4 was never drafted and counts as 0.
    assert set(engine.run(50)) == {3}
    fresh = TinyEngine(dynamic(acceptance=None), accepts=5, batch=1)
    assert set(fresh.run(50)) == {5}


def test_a_drafter_that_dies_late_is_believed_in_as_long_again() -> None:
    engine = TinyEngine(dynamic(acceptance=None), accepts=5, batch=1)
    engine.run(1000)
    engine.accepts = 0
    depths = engine.run(8000)
    # Off pays below a rate of about .16 at the first position.
    switched = depths.index(0)
    assert switched > 3000


def test_at_k_0_nothing_is_learned_any_more() -> None:
    policy = dynamic(acceptance=None)
    engine = TinyEngine(policy, accepts=0, batch=64)
    engine.run(100)
    assert engine.step().draft_depth == 0
    before = policy.drafted.copy()
    engine.accepts = 5
    assert set(engine.run(500)) == {0}
    assert (policy.drafted == before).all()


def test_a_table_read_off_a_profile_is_at_its_own_context(tmp_path: Path) -> None:
    cost = {"fixed": 0.01, "token": 1e-4, "draft_pass": 1e-3}
    path = profile_file(tmp_path, **cost)
    for batch in (1, 64):
        options = {"profile": path, "acceptance": RATES}
        engine = TinyEngine(build_baseline(NAME, options), batch=batch, seconds=linear(**cost))
        engine.policy.observe = lambda outcome: None
        engine.run(80)
        lengths = [1.0, 1.68, 2.07, 2.27, 2.37, 2.43]
        seconds = [linear(**cost)(batch * (k + 1), k) for k in range(6)]
        scores = [length / second for length, second in zip(lengths, seconds, strict=True)]
        assert engine.step().draft_depth == scores.index(max(scores))
