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

P_MIN: dict[str, Any] = {"p_min": 0.5, "max_drafts": 5}
WINDOW = {"acceptance_rate_window_size": 3, "acceptance_rate_threshold": 0.5}
REQUESTS = {"acceptance_window": 3, "acceptance_length_threshold": 1.0}
QUICK = {"trial_steps": 2, "hold_steps": 6, "baseline_period": 1000}
EAGLE: dict[str, Any] = {"drafter": "eagle", "auc": None, "tokens": 12_000}
TABLE = [[1, 0, 6.9], [1, 1, 8.0], [1, 5, 10.8], [64, 0, 8.5], [64, 1, 15.4], [64, 5, 37.5]]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("acceptance_adaptive_k", {"window": 40, "probe_interval": 8}),
        ("banditspec_ucb", {"corrected": True}),
        ("banditspec_exp3", {"corrected": True}),
        ("cascade", QUICK),
        ("llama_p_min", P_MIN),
        ("trtllm_window_gate", {**WINDOW, "schedule": [[2, 5], [3, 1]]}),
        ("trtllm_request_gate", {**REQUESTS, "k": 3}),
        ("trtllm_schedule", {"schedule": [[3, 5], [4, 2]]}),
        ("vllm_dynamic", {"itl_ms": TABLE}),
    ],
)
def test_options_keep_the_contract(name: str, options: dict[str, Any]) -> None:
    # tests/policies/test_contract.py checks every installed policy without options.
    check_policy(lambda seed: build_baseline(name, options, seed=seed))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("arctic_suffix", {}),
        ("arctic_suffix", {"disable_by_batch_size": 2, "hard_disable_by_batch_size": 4}),
        ("cascade", {}),
        ("cascade", QUICK),
        ("hf_confidence", {}),
        ("hf_heuristic", {}),
        ("llama_p_min", P_MIN),
        ("tetris", {}),
        ("tetris", {"extra_drafts": 3, "turn_on_batch_size": 3}),
        ("vllm_adaptive_verification", {}),
    ],
)
def test_plans_can_run_with_a_signal_at_every_level(name: str, options: dict[str, Any]) -> None:
    assert provenance_of(type(make(name, **options))).source
    check_with_signal(name, **options)


def test_only_tetris_changes_sampled_output() -> None:
    assert provenance_of(type(make("tetris"))).greedy_drafts_only
    for name in ("arctic_suffix", "cascade", "hf_heuristic"):
        assert not provenance_of(type(make(name))).greedy_drafts_only


@pytest.mark.parametrize(
    ("name", "options", "level"),
    [
        (name, options, level)
        for name, options in (
            ("arctic_suffix", {"min_token_prob": 0.3}),
            ("hf_confidence", {}),
            ("llama_p_min", P_MIN),
            ("vllm_adaptive_verification", {"profile": "staircase"}),
        )
        for level in Level
        # With one K for the batch, Arctic spreads what was proposed over the requests.
        if (name, level) != ("arctic_suffix", Level.UNIFORM)
    ],
)
def test_no_position_depends_on_deeper_ones(
    name: str, options: dict[str, Any], level: Level, tmp_path: Path
) -> None:
    if "profile" in options:
        options = {"profile": staircase(tmp_path)}
    stays_causal(make(name, **options), level)
    assert not provenance_of(type(make(name, **options))).greedy_drafts_only


def test_it_drafts_less_where_the_drafter_is_unsure() -> None:
    sure, unsure = (simulated("hf_confidence", acceptance=f"model:steady-{p}") for p in (80, 10))
    assert unsure.mean_k < 0.8 * sure.mean_k


@pytest.mark.parametrize(
    ("name", "warmup_steps", "good", "dead"),
    [
        ("acceptance_adaptive_k", 150, (2.0, 5.0), (0.0, 0.3)),
        ("sglang_ema", 100, (3.0, 5.0), (0.9, 1.5)),
        ("sglang_throughput", 150, (2.5, 5.0), (0.9, 1.3)),
        ("turbospec", 150, (2.0, 5.0), (0.0, 0.4)),
        ("vllm_dynamic", 150, (2.0, 5.0), (0.0, 1.1)),
    ],
)
def test_it_goes_deep_with_a_good_drafter_and_shallow_with_a_dead_one(
    name: str, warmup_steps: int, good: tuple[float, float], dead: tuple[float, float]
) -> None:
    for model, (low, high) in (("good", good), ("dead", dead)):
        found = simulated(name, **EAGLE, acceptance=f"model:{model}", warmup_steps=warmup_steps)
        assert low <= found.mean_k <= high, model


@pytest.mark.parametrize(
    ("name", "options", "gap"),
    [
        ("banditspec_ucb", {"generation_tokens": 0, "corrected": True}, 0.3),
        ("banditspec_exp3", {"generation_tokens": 0, "corrected": True}, 0.3),
        ("nightjar", {}, 0.7),
    ],
)
def test_it_drafts_deeper_with_a_good_drafter_than_with_a_dead_one(
    name: str, options: dict[str, Any], gap: float
) -> None:
    good, dead = (
        simulated(name, acceptance=f"model:{model}", warmup_steps=300, **EAGLE, **options).mean_k
        for model in ("good", "dead")
    )
    assert good > dead + gap


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("acceptance_adaptive_k", {"threshold": 0.0}, "> 0"),
        ("acceptance_adaptive_k", {"threshold": 1.5}, "<= 1"),
        ("acceptance_adaptive_k", {"window": 0}, ">= 1"),
        ("acceptance_adaptive_k", {"hysteresis": -0.1}, ">= 0"),
        ("acceptance_adaptive_k", {"table": [[2, 4, 1]]}, "begin at batch size 1"),
        ("banditspec_ucb", {"arms": []}, "keys are"),
        ("banditspec_ucb", {"arms": [-1]}, "keys are"),
        ("banditspec_ucb", {"generation_tokens": -1}, "keys are"),
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
        ("trtllm_window_gate", {}, "acceptance_rate_window_size"),
        ("trtllm_window_gate", {**WINDOW, "acceptance_rate_threshold": 1.5}, "<= 1"),
        ("trtllm_window_gate", {**WINDOW, "acceptance_rate_window_size": 0}, ">= 1"),
        ("trtllm_window_gate", {**WINDOW, "k": 3, "schedule": [[4, 4]]}, "not both"),
        ("trtllm_request_gate", {**REQUESTS, "acceptance_length_threshold": -1}, ">= 0"),
        ("trtllm_schedule", {"schedule": []}, "empty"),
        ("trtllm_schedule", {"schedule": [[8, 2], [4, 4]]}, "does not ascend"),
        ("trtllm_schedule", {"schedule": [[4, -1]]}, "negative"),
        ("turbospec", {"initial_acceptance": 1.0}, "keys are"),
        ("turbospec", {"update_interval": 0}, "keys are"),
        ("vllm_dynamic", {"itl_ms": [[4, 0, 1.0], [4, 1, 1.0]]}, "batch size 1"),
        ("vllm_dynamic", {"itl_ms": [[1, 0, 1.0], [1, 3, 1.0]]}, "K = 0 and K = 1"),
        ("vllm_dynamic", {"itl_ms": [[1, 0, -1.0]]}, "> 0"),
        ("vllm_dynamic", {"acceptance": [1.5]}, "<= 1"),
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
