from __future__ import annotations

import numpy as np

from adaptive_spec.policy import build_policy
from adaptive_spec.step import Capability, Level, StepContext
from adaptive_spec.testing.conformance import check_policy
from benchmarks.vllm_cpu.random_k import RandomKOptions, RandomKPolicy

NAME = "benchmarks.vllm_cpu.random_k:RandomKPolicy"
LEVELS = (Level.VERIFY, Level.FULL)


def context(step: int) -> StepContext:
    """Four requests, all drafts at hand."""
    return StepContext(
        step=step,
        capability=Capability(level=Level.FULL, max_draft_tokens=6),
        request_ids=["a", "b", "c", "d"],
        slots=np.arange(4),
        context_tokens=np.full(4, 50),
        draft_available=np.full(4, 6),
        draft_possible=np.full(4, 6),
        engine_k=6,
        tpot_target=np.full(4, np.inf),
        task=np.full(4, -1),
        temperature=np.full(4, 0.8),
    )


def test_it_keeps_the_contract_of_a_policy() -> None:
    check_policy(lambda seed: build_policy(NAME, {}, seed=seed), levels=LEVELS)


def test_tokens_and_depth_vary_independently() -> None:
    policy = RandomKPolicy(RandomKOptions(), seed=1)
    plans = [policy.plan(context(step)) for step in range(400)]
    tokens = np.array([plan.verify.sum() for plan in plans])
    depths = np.array([plan.draft_depth for plan in plans])
    assert set(depths) == set(range(7))
    assert tokens.min() == 0
    assert tokens.max() == 24
    assert abs(np.corrcoef(tokens, depths)[0, 1]) < 0.15


def test_some_batches_have_one_k_and_some_do_not() -> None:
    policy = RandomKPolicy(RandomKOptions(), seed=1)
    ragged = [np.ptp(policy.plan(context(step)).verify) > 0 for step in range(200)]
    assert 0.2 < np.mean(ragged) < 0.6
