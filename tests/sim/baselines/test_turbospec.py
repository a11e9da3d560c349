"""TurboSpec: goodput of one rate, the bias to off, the first maximum, the frozen rate."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from adaptive_spec import Level, Mode
from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine, linear, profile_file

NAME = "adaptive_spec.sim.baselines.papers.turbospec:TurboSpecPolicy"
FREE = {"fixed": 0.01, "token": 0.0, "draft_pass": 1e-3}


def turbospec(folder: Path, cost: dict[str, float], **options: Any) -> Any:
    return build_baseline(NAME, {"profile": profile_file(folder, **cost), **options})


def started(folder: Path, cost: dict[str, float], **engine: Any) -> TinyEngine:
    """Past profiling, with the rate of acceptance still at its start."""
    options = engine.pop("options", {})
    machine = TinyEngine(turbospec(folder, cost, **options), seconds=linear(**cost), **engine)
    machine.policy.observe = lambda outcome: None  # nothing is learned
    return machine


def goodputs(rate: float, cost: dict[str, float], batch: int, kmax: int) -> list[float]:
    seconds = linear(**cost)
    return [
        sum(rate**j for j in range(k + 1)) * batch / seconds(batch * (k + 1), k)
        for k in range(kmax + 1)
    ]


def test_it_maximises_goodput_of_the_initial_rate(tmp_path: Path) -> None:
    # .7: 1.7 / 12 ms, 2.19 / 13, 2.53 / 14, 2.77 / 15, 2.94 / 16: the gain ends at 4.
    engine = started(tmp_path, {**FREE, "draft_pass": 1.6e-3}, kmax=8)
    best = goodputs(0.7, {**FREE, "draft_pass": 1.6e-3}, 4, 8)
    engine.run(60)
    assert engine.step().draft_depth == best.index(max(best)) == 3


NEAR_OFF = {"fixed": 0.01, "token": 0.0031, "draft_pass": 0.0}
"""K = 1 is less than a tenth better than off: 1.7 (f + 4 t) / (f + 8 t) = 1.1 at t = .3 f."""


@pytest.mark.parametrize(
    ("cost", "engine", "k"),
    [
        pytest.param(NEAR_OFF, {"kmax": 1}, 0, id="off wins below a tenth"),
        pytest.param({**NEAR_OFF, "token": 0.0029}, {"kmax": 1}, 1, id="and not above it"),
        pytest.param(NEAR_OFF, {"kmax": 1, "options": {"off_bias": 1.0}}, 1, id="without bias"),
        # 1.1 x 4 x (100 + k + 1) <= 450: k <= 1.
        pytest.param(FREE, {"kv_total_tokens": 450}, 1, id="a K that would leave the KV pool"),
    ],
)
def test_which_k_runs(
    cost: dict[str, float], engine: dict[str, Any], k: int, tmp_path: Path
) -> None:
    machine = started(tmp_path, cost, **engine)
    machine.run(60)
    assert machine.step().draft_depth == k


@pytest.mark.parametrize(("cold", "mode"), [(True, Mode.OFF_COLD), (False, Mode.OFF_WARM)])
def test_at_k_0_the_drafter_is_left_out_only_if_asked_for(
    cold: bool, mode: Mode, tmp_path: Path
) -> None:
    engine = started(tmp_path, {**NEAR_OFF, "token": 0.1}, options={"cold": cold}, cold_off=True)
    engine.run(60)
    assert engine.step().mode is mode


def test_it_stops_at_the_first_maximum_though_a_later_one_is_higher(tmp_path: Path) -> None:
    # Captured sizes 4, 8 and 64: two drafts cost as much as eight, so K = 1 looks best until K = 8.
    cost = {"fixed": 0.01, "token": 1e-4, "draft_pass": 0.0}
    engine = started(tmp_path, cost, kmax=8, token_buckets=(4, 8, 64))
    engine.run(60)
    buckets = [4, 8, *[64] * 7]
    values = [
        sum(0.7**j for j in range(k + 1)) / (0.01 + 1e-4 * tokens)
        for k, tokens in enumerate(buckets)
    ]
    assert values[2] < values[1] < values[8]
    assert engine.step().draft_depth == 1


def test_it_decides_every_20_steps(tmp_path: Path) -> None:
    cost = {**FREE, "draft_pass": 2e-3}
    engine = TinyEngine(turbospec(tmp_path, cost), accepts=5, seconds=linear(**cost))
    engine.run(100)
    engine.accepts = 0
    depths = engine.run(800)
    changes = [i for i in range(1, 800) if depths[i] != depths[i - 1]]
    assert len(changes) > 1
    assert all((after - before) % 20 == 0 for before, after in itertools.pairwise(changes))


def test_the_rate_is_cumulative_and_averaged_on_top(tmp_path: Path) -> None:
    policy = turbospec(tmp_path, FREE)
    engine = TinyEngine(policy, accepts=5, seconds=linear(**FREE))
    rate, accepted, judged = 0.7, 0, 0
    for step in range(60):
        engine.accepts = 5 if step < 40 else 1
        engine.step()
        new = int((engine.outcome.accepted < engine.outcome.verified).sum())
        accepted += int(engine.outcome.accepted.sum())
        judged += int(engine.outcome.accepted.sum()) + new
        if engine.outcome.verified.any():
            rate = 0.85 * rate + 0.15 * accepted / judged
        assert policy.acceptance == pytest.approx(rate)


def test_once_off_the_rate_is_frozen_and_a_revived_drafter_goes_unseen(tmp_path: Path) -> None:
    cost = {"fixed": 0.01, "token": 1e-3, "draft_pass": 1e-3}
    policy = turbospec(tmp_path, cost)
    engine = TinyEngine(policy, accepts=0, seconds=linear(**cost))
    engine.run(400)
    assert engine.step().mode is Mode.OFF_WARM
    frozen = policy.acceptance
    engine.accepts = 5
    assert set(engine.run(2000)) == {0}
    assert policy.acceptance == frozen


def test_where_depth_is_fixed_drafting_costs_the_same_for_every_k(tmp_path: Path) -> None:
    cost = {**FREE, "draft_pass": 1.2e-3}
    free, fixed = (started(tmp_path, cost, level=level) for level in (Level.FULL, Level.VERIFY))
    free.run(60)
    fixed.run(60)
    assert free.step().draft_depth < fixed.step().draft_depth == 5
