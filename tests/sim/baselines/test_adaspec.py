"""AdaSpec: when it stops drafting, what it cuts, the SLO line, and life without probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Level, Mode
from adaptive_spec.sim.engine.early_stop import DraftPass
from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine, linear, profile_file

NAME = "adaptive_spec.sim.baselines.papers.adaspec:AdaSpecPolicy"
COST = {"fixed": 0.01, "token": 1e-5, "draft_pass": 2e-3}


def adaspec(folder: Path, cost: dict[str, float] | None = None, **options: Any) -> Any:
    return build_baseline(NAME, {"profile": profile_file(folder, **(cost or COST)), **options})


def ready(
    folder: Path, cost: dict[str, float] | None = None, options: Any = None, **engine: Any
) -> TinyEngine:
    """Past profiling, on an engine that knows the probabilities of drafts."""
    policy = adaspec(folder, cost, **(options or {}))
    machine = TinyEngine(policy, seconds=linear(**(cost or COST)), **engine)
    machine.run(130)
    policy.total, policy.drafts = 0.0, 0  # what was accepted until now is no probability
    machine.confidence = np.full((machine.batch, machine.capability.max_draft_tokens), np.nan)
    return machine


def draft(machine: TinyEngine, probabilities: list[float] | np.ndarray) -> int:
    """Let it draft with these probabilities [Kmax] for all or [B, Kmax]; the passes that ran."""
    batch, policy = machine.batch, machine.policy
    confidence = np.broadcast_to(probabilities, (batch, machine.capability.max_draft_tokens))
    depth = machine.step().draft_depth
    drafting = np.ones(batch, dtype=np.bool_)
    for position in range(depth):
        verdict = policy.after_draft_pass(
            DraftPass(
                position=position,
                slots=np.arange(batch),
                drafting=drafting,
                confidence=confidence[:, : position + 1],
                entropy=np.zeros((batch, position + 1)),
            )
        )
        assert verdict.admitted.all(), "a pass that ran is kept"
        if not verdict.drafting.any():
            return position + 1
    return depth


def goodput(survival: list[float], batch: int = 4, cost: dict[str, float] = COST) -> float:
    k = len(survival)
    return batch * (1 + sum(survival)) / linear(**cost)(batch * (k + 1), k)


def test_it_drafts_on_while_probabilities_are_high(tmp_path: Path) -> None:
    assert draft(ready(tmp_path), [0.99, 0.99, 0.99, 0.99, 0.99]) == 5


def test_it_stops_after_the_pass_that_lowers_goodput_and_keeps_it(
    tmp_path: Path,
) -> None:
    # Predicted with .9 and then .85 on average, the second pass is worth it; in truth it is not.
    a = [0.9, 0.9 * 0.05]
    assert goodput(a[:1]) > goodput([])
    assert goodput([0.9, 0.81]) > goodput(a[:1]) > goodput(a)
    machine = ready(tmp_path)
    assert draft(machine, [0.9, 0.05, 0.99, 0.99, 0.99]) == 2
    # A pass that lowered goodput does not enter the mean.
    assert machine.policy.total == pytest.approx(4 * 0.9)
    assert machine.policy.drafts == 4


def test_it_stops_before_a_pass_that_is_predicted_to_lower_goodput(tmp_path: Path) -> None:
    dear = {**COST, "draft_pass": 5e-3}
    # The first draft holds goodput; the mean of .62 does not pay a second pass.
    assert goodput([0.62], cost=dear) > goodput([], cost=dear)
    assert goodput([0.62, 0.62**2], cost=dear) < goodput([0.62], cost=dear)
    assert draft(ready(tmp_path, dear), [0.62, 0.99, 0.99, 0.99, 0.99]) == 1


def plain_rule(
    probabilities: np.ndarray, seconds: list[float], mean: list[float], kmax: int
) -> int:
    """The released loop, written down as one; `mean` is [sum, count] of probabilities."""
    batch = len(probabilities)

    def confidence() -> float:
        return mean[0] / mean[1] if mean[1] else 0.6

    last = batch / seconds[0]
    if not batch * (1 + confidence()) / seconds[1] > last:
        return 0
    survival = np.ones(batch)
    value = float(batch)
    for k in range(1, kmax + 1):
        if k > 1 and (value + survival.sum() * confidence()) / seconds[k] < last:
            return k - 1
        survival = survival * probabilities[:, k - 1]
        value += survival.sum()
        fell = value / seconds[k] < last
        last = value / seconds[k]
        if fell:
            return k
        mean[0] += probabilities[:, k - 1].sum()
        mean[1] += batch
    return kmax


def test_it_drafts_as_deep_as_the_released_loop(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    depths = set()
    for draft_pass in (2e-4, 2e-3, 4e-3):
        cost = {"fixed": 0.01, "token": 2e-5, "draft_pass": draft_pass}
        machine = ready(tmp_path, cost)
        seconds = [linear(**cost)(4 * (k + 1), k) for k in range(6)]
        mean = [0.0, 0]
        for _ in range(60):
            likely = float(random.choice([0.2, 0.6, 0.95]))
            probabilities = random.beta(4 * likely, 4 * (1 - likely), (4, 5))
            wanted = plain_rule(probabilities, seconds, mean, 5)
            assert draft(machine, probabilities) == wanted
            depths.add(wanted)
    assert len(depths) >= 4


def test_it_does_not_draft_if_the_first_draft_is_not_expected_to_pay(tmp_path: Path) -> None:
    dear = {**COST, "draft_pass": 0.0, "token": 5e-3}
    # 1.6 x (10 + 20) < 10 + 40.
    machine = ready(tmp_path, dear)
    assert machine.run(2)[-1] == 0
    assert machine.step().mode is Mode.OFF_WARM


def test_a_step_longer_than_the_slo_is_infeasible(tmp_path: Path) -> None:
    # 10 ms + 2 per pass: three passes with their tokens take 16.2 ms.
    high = [0.99] * 5
    assert draft(ready(tmp_path, options={"tpot_limit_seconds": 0.0165}), high) == 3
    assert draft(ready(tmp_path, options={"tpot_limit_seconds": 0.0155}), high) == 2
    assert ready(tmp_path, options={"tpot_limit_seconds": 0.011}).run(3)[-1] == 0


def test_the_verification_is_cut_to_the_size_below(tmp_path: Path) -> None:
    # 4 requests with 2 drafts each are 12 tokens; the size below is 8.
    steep = {"fixed": 0.001, "token": 2e-3, "draft_pass": 1e-4}
    machine = ready(tmp_path, steep)
    machine.depth = machine.policy._depth = 2
    machine.confidence = np.array([[0.9, 0.9], [0.9, 0.1], [0.2, 0.2], [0.9, 0.8]])
    machine.confidence = np.pad(machine.confidence, ((0, 0), (0, 3)), constant_values=np.nan)
    # The smallest a_i2 are .04 and .09: requests 2 and 1 lose all they have, 4 drafts in all.
    assert machine.step().verify.tolist() == [2, 0, 0, 2]


def test_a_cut_that_would_cost_goodput_is_not_made(tmp_path: Path) -> None:
    machine = ready(tmp_path)
    machine.depth = machine.policy._depth = 2
    machine.confidence = np.full((4, 5), 0.9)
    assert machine.step().verify.tolist() == [2] * 4


def test_a_batch_at_a_captured_size_is_cut_to_the_one_below(tmp_path: Path) -> None:
    steep = {"fixed": 0.001, "token": 2e-3, "draft_pass": 1e-4}
    machine = ready(tmp_path, steep, batch=8)
    machine.depth = machine.policy._depth = 1
    machine.confidence = np.full((8, 5), 0.3)
    # 16 tokens would fit the size of 16; the rule goes to 8, that is to no drafts at all.
    assert machine.step().verify.tolist() == [0] * 8


def test_the_cut_goes_to_the_engines_captured_sizes(tmp_path: Path) -> None:
    steep = {"fixed": 0.001, "token": 2e-3, "draft_pass": 1e-4}
    machine = ready(tmp_path, steep, token_buckets=(4, 9, 10, 32))
    machine.depth = machine.policy._depth = 2
    machine.confidence = np.tile([0.2, 0.2, np.nan, np.nan, np.nan], (4, 1))
    # 12 tokens run as 32; 10 fit the size below, two drafts less.
    assert int(machine.step().verify.sum()) == 6


def test_without_probabilities_the_rate_of_acceptance_stands_for_them(tmp_path: Path) -> None:
    dear = {**COST, "draft_pass": 3e-3}
    depths = {}
    for accepts in (0, 1, 5):
        machine = TinyEngine(adaspec(tmp_path, dear), accepts=accepts, seconds=linear(**dear))
        machine.run(400)
        depths[accepts] = machine.step().draft_depth
    assert depths[0] == 0
    assert 0 < depths[1] < depths[5] == 5


def test_an_engine_that_never_asks_is_not_drafted_for_to_the_full(tmp_path: Path) -> None:
    dear = {**COST, "draft_pass": 4e-3}
    machine = ready(tmp_path, dear)
    assert machine.run(4) == [5] * 4
    assert machine.run(10)[-1] < 5


def test_where_all_is_drafted_the_stop_decides_what_is_verified(tmp_path: Path) -> None:
    # Passes run anyway: a token costs so much that the second, at .1, is not worth it.
    cost = {"fixed": 0.01, "token": 1e-3, "draft_pass": 0.0}
    machine = ready(tmp_path, cost, {"cut": False}, level=Level.VERIFY)
    machine.confidence = np.tile([0.9, 0.1, 0.9, 0.9, 0.9], (4, 1))
    assert machine.step().verify.tolist() == [2] * 4
    machine.confidence = np.tile([0.99] * 5, (4, 1))
    assert machine.step().verify.tolist() == [5] * 4


def test_a_uniform_engine_is_never_cut(tmp_path: Path) -> None:
    steep = {"fixed": 0.001, "token": 2e-3, "draft_pass": 1e-4}
    machine = ready(tmp_path, steep, level=Level.UNIFORM, ladder=(0, 1, 3))
    machine.depth = machine.policy._depth = 3
    machine.confidence = np.tile(np.linspace(0.1, 0.9, 4)[:, None], (1, 5))
    assert machine.step().verify.tolist() == [3] * 4
