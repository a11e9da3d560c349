"""SGLang's adaptive steps around the rule, which tests/sglang holds against SGLang's own."""

from typing import Any

from adaptive_spec import Level
from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine

NAME = "adaptive_spec.sim.baselines.engines.sglang_ema:SGLangEmaPolicy"


def ema(**options: Any) -> Any:
    return build_baseline(NAME, options)


def test_at_k_0_it_probes_at_every_update_for_ever() -> None:
    engine = TinyEngine(ema(), accepts=0, batch=8)
    engine.run(100)
    late = engine.run(1000)
    assert 0.4 < sum(k > 0 for k in late) / 1000 < 0.6


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
