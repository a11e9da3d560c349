"""The +2 / -1 heuristic of transformers."""

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


def test_kmax_caps_what_is_drafted_and_not_the_number_behind_it() -> None:
    """`tests/vllm/baselines` runs transformers itself."""
    policy = make(HEURISTIC)
    assert k_of(policy) == [KMAX]
    seen = []
    for full in (True, False, True, True, False, False, False):
        policy.observe(finished([5], [5 if full else 0]))
        seen += k_of(policy)
    assert seen == [KMAX] * 7  # 22, 21, 23, 25, 24, 23, 22
    for _ in range(30):
        policy.observe(finished([2], [0]))
    assert k_of(policy) == [1]


def test_an_accepted_end_of_text_takes_one_and_no_room_for_a_draft_gives_two() -> None:
    policy = make(HEURISTIC, initial=3)
    k_of(policy)
    policy.observe(finished([3], [3], emitted=np.array([3])))
    assert k_of(policy) == [2]
    full = context(draft_possible=np.array([0]), draft_available=np.array([0]))
    policy.observe(finished([0], [0], seen=full))
    assert k_of(policy) == [4]


def test_rounds_whose_drafts_were_not_made_change_nothing() -> None:
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
