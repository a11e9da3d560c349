"""What baselines have in common: the contract, causality, clear errors, a sane simulation."""

from pathlib import Path
from typing import Any

import pytest

from adaptive_spec import Level, check_policy
from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import REMOVED, provenance_of
from tests.sim.baselines.baseline_support import (
    build_baseline,
    check_with_signal,
    make,
    simulated,
    staircase,
    stays_causal,
)

QUICK = {"trial_steps": 2, "hold_steps": 6, "baseline_period": 1000}
EAGLE: dict[str, Any] = {"drafter": "eagle", "auc": None, "tokens": 12_000}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cascade", QUICK),
        ("trtllm_schedule", {"schedule": [[3, 5], [4, 2]]}),
    ],
)
def test_options_keep_the_contract(name: str, options: dict[str, Any]) -> None:
    # tests/policies/test_contract.py checks every installed policy without options.
    check_policy(lambda seed: build_baseline(name, options, seed=seed))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cascade", {}),
        ("cascade", QUICK),
        ("vllm_adaptive_verification", {}),
    ],
)
def test_plans_can_run_with_a_signal_at_every_level(name: str, options: dict[str, Any]) -> None:
    assert provenance_of(type(make(name, **options))).source
    check_with_signal(name, **options)


@pytest.mark.parametrize("level", Level)
def test_no_position_depends_on_deeper_ones(level: Level, tmp_path: Path) -> None:
    policy = make("vllm_adaptive_verification", profile=staircase(tmp_path))
    stays_causal(policy, level)


@pytest.mark.parametrize(
    ("name", "warmup_steps", "good", "dead"),
    [
        ("sglang_ema", 100, (3.0, 5.0), (0.9, 1.5)),
        ("sglang_throughput", 150, (2.5, 5.0), (0.9, 1.3)),
        ("turbospec", 150, (2.0, 5.0), (0.0, 0.4)),
    ],
)
def test_it_goes_deep_with_a_good_drafter_and_shallow_with_a_dead_one(
    name: str, warmup_steps: int, good: tuple[float, float], dead: tuple[float, float]
) -> None:
    for model, (low, high) in (("good", good), ("dead", dead)):
        found = simulated(name, **EAGLE, acceptance=f"model:{model}", warmup_steps=warmup_steps)
        assert low <= found.mean_k <= high, model


def test_nightjar_drafts_deeper_with_a_good_drafter_than_with_a_dead_one() -> None:
    good, dead = (
        simulated("nightjar", acceptance=f"model:{model}", warmup_steps=300, **EAGLE).mean_k
        for model in ("good", "dead")
    )
    assert good > dead + 0.7


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("nightjar", {"exploration": "often"}, "keys are"),
        ("nightjar", {"switch_seconds": -1}, "keys are"),
        ("nightjar", {"max_contexts": 0}, "keys are"),
        ("sglang_ema", {"tiers": []}, "ascend"),
        ("sglang_ema", {"tiers": [{"batch_size": 1, "candidate_steps": []}]}, "length >= 1"),
        ("sglang_ema", {"tiers": [{"batch_size": 0, "candidate_steps": [1]}]}, ">= 1"),
        ("sglang_ema", {"graph_batch_sizes": [8, 4]}, "ascend"),
        ("sglang_ema", {"tears": 1}, "tears"),
        ("sglang_throughput", {"candidates": [[1, [0, 1]]]}, ">= 1"),
        ("sglang_throughput", {"candidates": []}, "ascend"),
        ("sglang_throughput", {"candidates": [[8, [1]], [1, [3]]]}, "ascend"),
        ("sglang_throughput", {"profiled_batch_sizes": [4, 1]}, "ascend"),
        ("trtllm_schedule", {"schedule": []}, "empty"),
        ("trtllm_schedule", {"schedule": [[8, 2], [4, 4]]}, "does not ascend"),
        ("trtllm_schedule", {"schedule": [[4, -1]]}, "negative"),
        ("turbospec", {"initial_acceptance": 1.0}, "keys are"),
        ("turbospec", {"update_interval": 0}, "keys are"),
    ],
)
def test_wrong_options_are_one_clear_error(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        build_baseline(name, options)


def test_a_removed_name_tells_what_to_use() -> None:
    for name, instead in REMOVED.items():
        with pytest.raises(PolicyError) as refused:
            build_baseline(name)
        assert str(refused.value) == f"policy {name!r} was removed in 0.2: use {instead}"
        for each in instead.split(", or "):
            build_baseline(each)
