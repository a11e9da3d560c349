"""SGLang's adaptive steps: thresholds up and down, probes, tiers and their faults."""

from __future__ import annotations

from typing import Any

from adaptive_spec import Level, Mode
from adaptive_spec.sim.baselines.engines.sglang_ema import EmaSlot, EmaTier
from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine

NAME = "adaptive_spec.sim.baselines.engines.sglang_ema:SGLangEmaPolicy"


def ema(**options: Any) -> Any:
    return build_baseline(NAME, options)


def slot(candidates: list[int], initial: int, **changes: Any) -> EmaSlot:
    tier = EmaTier(batch_size=1, candidate_steps=candidates, warmup_batches=0, **changes)
    return EmaSlot(tier, candidates, initial)


def test_nothing_moves_before_the_warm_up_and_the_first_interval() -> None:
    engine = TinyEngine(ema(), accepts=0, batch=1)
    # Step 0 verifies nothing: the first batch is step 1, the 15th step 15, its K is drafted in 16.
    assert engine.run(16) == [5] * 16
    assert engine.step().draft_depth < 5


def test_the_average_stops_at_the_candidate_whose_threshold_it_clears() -> None:
    # 1 accepted: below 3 - .75 but above 1 - .75, so 5 goes to 3 and no further.
    engine = TinyEngine(ema(), accepts=1, batch=1)
    engine.run(40)
    assert set(engine.run(100)) == {3}


def test_a_candidate_is_left_at_its_threshold_and_reached_only_above_it() -> None:
    down = slot([1, 3], 3, ema_alpha=1.0, update_interval=1, down_hysteresis=-0.25)
    down.record(0.26)
    assert down.k == 3
    down.record(0.25)
    assert down.k == 1
    up = slot([1, 3], 1, ema_alpha=1.0, update_interval=1)
    up.record(0.5)
    assert up.k == 1
    up.record(0.51)
    assert up.k == 3


def test_several_candidates_are_skipped_at_once() -> None:
    up = slot([1, 3, 5, 7], 1, ema_alpha=1.0, update_interval=1)
    up.record(4.6)
    assert up.k == 7
    up.record(0.0)
    assert up.k == 1


def test_the_threshold_to_off_is_half_a_draft() -> None:
    off = slot([0, 1, 3], 1, ema_alpha=1.0, update_interval=1, down_hysteresis=0.0)
    off.record(0.51)
    assert off.k == 3
    off = slot([0, 1, 3], 1, ema_alpha=1.0, update_interval=1, down_hysteresis=0.0)
    off.record(0.5)
    assert off.k == 0


def test_a_ceiling_holds_k_down_but_does_not_stop_a_rise() -> None:
    held = slot([1, 3, 5], 5, ema_alpha=1.0, update_interval=1, ceiling_coeff=1.0)
    held.record(2.9)
    assert held.k == 3
    rising = slot([1, 3, 5], 1, ema_alpha=1.0, update_interval=1, ceiling_coeff=0.1)
    rising.record(1.0)
    assert rising.k == 3


def test_at_k_0_it_probes_at_every_update_for_ever() -> None:
    engine = TinyEngine(ema(), accepts=0, batch=8)
    engine.run(100)
    late = engine.run(1000)
    assert 0.4 < sum(k > 0 for k in late) / 1000 < 0.6


def test_below_batch_8_it_is_never_off_and_from_64_always() -> None:
    small = TinyEngine(ema(), accepts=0, batch=7)
    small.run(100)
    assert set(small.run(200)) == {1}
    large = TinyEngine(ema(), accepts=5, batch=64)
    assert set(large.run(200)) == {0}
    assert large.step().mode is Mode.OFF_WARM


def test_a_tier_keeps_its_own_k_while_another_one_runs() -> None:
    policy = ema()
    engine = TinyEngine(policy, accepts=5, batch=1)
    engine.run(50)
    engine.batch = 64
    assert set(engine.run(50)[1:]) == {0}
    engine.batch = 1
    assert engine.step().draft_depth == 5


def test_captured_batch_sizes_decide_the_tier() -> None:
    assert TinyEngine(ema(), batch=6).step().draft_depth == 5
    assert TinyEngine(ema(graph_batch_sizes=[1, 8]), batch=6).step().draft_depth == 1


def test_a_step_that_still_verifies_the_k_before_is_not_counted() -> None:
    tier = {"batch_size": 1, "candidate_steps": [1, 5], "warmup_batches": 0, "update_interval": 1}
    policy = ema(tiers=[tier], initial_steps=1)
    engine = TinyEngine(policy, accepts=5, batch=1)
    counts = []
    for _ in range(12):
        depth, before = engine.depth, policy.tiers.slots[0].batches if policy.tiers else 0
        planned = engine.step().draft_depth
        counts.append((depth == planned, policy.tiers.slots[0].batches - before))
    assert (True, 1) in counts
    assert (False, 0) in counts
    assert (False, 1) not in counts


def test_a_late_outcome_is_credited_to_its_step() -> None:
    prompt, late = (TinyEngine(ema(), accepts=1, batch=1, delay=d) for d in (0, 2))
    prompt.run(200)
    late.run(200)
    assert set(prompt.run(50)) == set(late.run(50)) == {3}


def test_candidates_the_engine_cannot_run_are_left_out() -> None:
    engine = TinyEngine(ema(), accepts=9, batch=1, level=Level.UNIFORM, ladder=(0, 1, 3))
    engine.run(100)
    assert engine.step().draft_depth == 3
