"""SGLang's throughput-aware steps: scores, windows, hysteresis and their faults."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_spec.sim.baselines.engines.sglang_throughput import PositionWindows
from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine, linear, profile_file

NAME = "adaptive_spec.sim.baselines.engines.sglang_throughput:SGLangThroughputPolicy"
FALLING = (3, 2, 1, 0)
COST = {"fixed": 0.01, "token": 1e-5, "draft_pass": 5e-4}
DEAR = {"fixed": 0.001, "token": 1e-3, "draft_pass": 5e-3}


def throughput(folder: Path, cost: dict[str, float] | None = None, **options: Any) -> Any:
    return build_baseline(NAME, {"profile": profile_file(folder, **(cost or COST)), **options})


def windows(rates: list[float], positions: int = 7, size: int = 10) -> PositionWindows:
    found = PositionWindows(positions, size)
    for window, rate in zip(found.windows, rates, strict=False):
        window.extend([rate] * size)
    return found


@pytest.mark.parametrize(
    ("rates", "k", "tokens"),
    [
        pytest.param([0.8, 0.4, 0.2], 3, 2.4, id="seen"),
        pytest.param([0.8, 0.4, 0.2], 5, 2.55, id="unseen ones continue geometrically"),
        pytest.param([0.6], 2, 2.2, id="one is copied once, which is too good"),
        pytest.param([0.0], 1, 1.0, id="no acceptance"),
        pytest.param([0.0, 0.0], 3, None, id="without any, deeper ones have no score"),
        pytest.param([], 1, None, id="nothing seen"),
    ],
)
def test_expected_tokens(rates: list[float], k: int, tokens: float | None) -> None:
    assert windows(rates).expected_tokens(k) == (tokens and pytest.approx(tokens))


def test_a_request_says_nothing_about_what_it_did_not_verify() -> None:
    found = PositionWindows(3, 5)
    found.record(np.array([3, 1]), np.array([2, 1]), 3)
    assert [list(window) for window in found.windows] == [[1.0], [1.0], [0.0]]


def test_it_waits_for_full_windows_of_all_positions(tmp_path: Path) -> None:
    engine = TinyEngine(throughput(tmp_path), accepts=0, kmax=7)
    depths = engine.run(80)
    # Profiling takes the first steps, then 20 batches of K = 7 are needed.
    switched = depths.index(1, 20)
    assert set(depths[switched:]) == {1}
    assert sum(depth == 7 for depth in depths[:switched]) >= 20


@pytest.mark.parametrize(
    ("cost", "accepts", "options", "ks"),
    [
        # Positions are accepted by 3, 2, 1, 0 of 4: 2.5 tokens at 11.66 ms (K = 3) or 13.82
        # (K = 7), 18 % more; at K = 3 the tail continues with .14, .08, not worth 2 or 4 passes.
        pytest.param(COST, FALLING, {}, {3}, id="the best tokens per second"),
        pytest.param(COST, FALLING, {"switch_hysteresis": 0.25}, {7}, id="below the hysteresis"),
        # Three drafts always accepted, never a fourth: seen from K = 3, every position is certain.
        pytest.param(COST, 3, {}, {3, 7}, id="an extrapolated tail is tried again and again"),
        pytest.param(DEAR, 0, {}, {1}, id="it never switches off"),
    ],
)
def test_what_runs_in_the_end(
    cost: dict[str, float], accepts: Any, options: dict[str, float], ks: set[int], tmp_path: Path
) -> None:
    policy = throughput(tmp_path, cost, **options)
    engine = TinyEngine(policy, accepts=accepts, kmax=7, seconds=linear(**cost))
    engine.run(150)
    assert set(engine.run(200)) == ks


def test_when_k_falls_the_windows_above_are_cleared(tmp_path: Path) -> None:
    policy = throughput(tmp_path)
    engine = TinyEngine(policy, accepts=0, kmax=7)
    engine.run(150)
    full, *rest = policy.windows.windows
    assert len(full) == 20
    assert not any(rest)


def test_a_batch_size_with_other_candidates_switches_at_once(tmp_path: Path) -> None:
    policy = throughput(tmp_path, candidates=[[1, [3, 5]], [16, [1]]])
    engine = TinyEngine(policy, accepts=5)
    engine.run(60)
    engine.batch = 16
    engine.run(40)
    assert set(engine.run(20)) == {1}
    engine.batch = 4
    assert engine.step().draft_depth in (3, 5)


def test_context_does_not_enter_its_costs(tmp_path: Path) -> None:
    short, long = (
        TinyEngine(throughput(tmp_path), accepts=2, context_tokens=tokens)
        for tokens in (100, 100_000)
    )
    assert short.run(200) == long.run(200)
