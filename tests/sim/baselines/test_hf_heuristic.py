"""The +2 / -1 heuristic of transformers."""

from __future__ import annotations

import numpy as np

from adaptive_spec import Capability, Level
from adaptive_spec.policy import Policy

from .baseline_support import KMAX, context, finished, make, simulated

HEURISTIC = "hf_heuristic"


def k_of(policy: Policy, batch: int = 1) -> list[int]:
    return policy.plan(context(batch)).verify.tolist()


def test_two_more_after_full_acceptance_one_less_otherwise() -> None:
    policy = make(HEURISTIC, initial=1)
    seen = []
    for accepted in (1, 3, 4, 3, 0, 1, 0, 0, 1):
        (k,) = k_of(policy)
        seen.append(k)
        policy.observe(finished([k], [min(accepted, k)]))
    assert seen == [1, 3, 5, 4, 3, 2, 1, 1, 1]
    assert k_of(policy) == [3]


def test_it_never_leaves_1_and_the_engines_kmax() -> None:
    policy = make(HEURISTIC)
    assert k_of(policy) == [KMAX]
    policy.observe(finished([5], [5]))
    policy.observe(finished([5], [4]))
    assert k_of(policy) == [4]
    for _ in range(20):
        policy.observe(finished([2], [0]))
    assert k_of(policy) == [1]


def test_rounds_without_drafts_change_nothing() -> None:
    policy = make(HEURISTIC, initial=3)
    k_of(policy)
    policy.observe(finished([0], [0]))
    assert k_of(policy) == [3]


def test_each_request_has_its_own_and_the_deepest_sets_the_depth() -> None:
    policy = make(HEURISTIC, initial=2)
    k_of(policy, 2)
    policy.observe(finished([2, 2], [2, 0]))
    plan = policy.plan(context(2))
    assert (plan.verify.tolist(), plan.draft_depth) == ([4, 1], 4)


def test_a_new_request_takes_up_where_the_last_ended_unless_told_otherwise() -> None:
    for transient, first in ((False, 1), (True, 3)):
        policy = make(HEURISTIC, initial=3, transient=transient)
        k_of(policy)
        for _ in range(5):
            policy.observe(finished([3], [0]))
        policy.forget(np.array([0]))
        assert k_of(policy) == [first]


def test_one_k_per_batch_is_the_mean() -> None:
    policy = make(HEURISTIC, initial=3)
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=5)
    policy.plan(context(3, capability=uniform))
    policy.observe(finished([3, 3, 3], [3, 0, 0]))  # 5, 2, 2
    assert policy.plan(context(3, capability=uniform)).verify.tolist() == [3, 3, 3]


def test_it_follows_acceptance_in_a_run() -> None:
    good, poor = (simulated(HEURISTIC, acceptance=f"model:steady-{p}", auc=None) for p in (80, 10))
    assert poor.mean_k < 1.5 < 2.5 < good.mean_k
