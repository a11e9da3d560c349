"""Plans that keep the TPOT of every request equal a search over every plan there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.planning.planner import best_admission
from adaptive_spec.planning.tpot_constraint import TpotTargets
from adaptive_spec.step import Capability, Level
from tests.core.planning.test_planner import capability_of, depths_that_run, instances


def brute_force(case: dict, targets: np.ndarray) -> tuple[bool, float]:
    """Best ratio over plans that keep all targets; or, if there is none, the smallest T."""
    survival, weights, caps = case["survival"], case["weights"], case["caps"]
    capability = capability_of(case)
    batch = survival.shape[1]
    best, shortest = -np.inf, np.inf
    for ks in itertools.product(*[range(cap + 1) for cap in caps]):
        tokens = np.array([1.0 + survival[: ks[i], i].sum() for i in range(batch)])
        for depth in depths_that_run(ks, caps, capability):
            verify = case["verify"][sum(ks)]
            if len(set(ks)) > 1:
                verify = verify * (1.0 + case["penalty"])
            seconds = verify + case["drafting"][depth]
            shortest = min(shortest, seconds)
            if (seconds <= targets * tokens * (1.0 + 1e-12)).all():
                best = max(best, float(weights @ tokens) / seconds)
    return (True, best) if np.isfinite(best) else (False, shortest)


@settings(max_examples=1500, deadline=None)
@given(case=instances(), seed=st.integers(0, 2**32 - 1), tight=st.sampled_from([0.5, 1.0, 2.0]))
def test_the_best_plan_within_the_targets_is_found(case: dict, seed: int, tight: float) -> None:
    survival, batch = case["survival"], case["survival"].shape[1]
    random = np.random.default_rng(seed)
    targets = tight * random.uniform(0.5, 2.0, batch)
    targets[random.random(batch) < 0.3] = np.inf
    arguments = (
        np.ascontiguousarray(survival * case["weights"]),
        case["weights"],
        case["caps"],
    )
    rest = (case["verify"], case["drafting"], capability_of(case))
    tpot = TpotTargets(survival, targets)
    depth = best_admission(*arguments, case["caps"], *rest, tpot).draft_depth
    # One step later the engine offers what was drafted to that depth.
    plan = best_admission(*arguments, np.minimum(case["caps"], depth), *rest, tpot)
    possible, expected = brute_force(case, targets)
    assert plan.draft_depth == depth
    assert tpot.kept(plan.verify, plan.seconds) == possible
    reached = plan.goodput if possible else plan.seconds
    assert reached == pytest.approx(expected, rel=2e-7)


def capability() -> Capability:
    return Capability(level=Level.FULL, max_draft_tokens=2)


def plan_for(targets: list[float], verify: list[float]) -> list[int]:
    survival = np.array([[0.9, 0.1], [0.8, 0.05]])
    limit = np.array([2, 2])
    return best_admission(
        survival,
        np.ones(2),
        limit,
        limit,
        np.array(verify),
        np.zeros(3),
        capability(),
        TpotTargets(survival, np.array(targets)),
    ).verify.tolist()


def test_a_request_that_hardly_accepts_shortens_the_step_for_all() -> None:
    rising = [1.0, 1.1, 1.2, 1.3, 1.4]
    assert plan_for([np.inf, np.inf], rising) == [2, 0]
    assert plan_for([np.inf, 1.15], rising) == [1, 0]


def test_a_target_may_ask_for_drafts_that_the_batch_would_not_verify() -> None:
    assert plan_for([np.inf, 1.1], [1.15, 1.15, 1.15, 1.16, 3.0]) == [2, 1]


def test_targets_nobody_can_keep_give_the_shortest_step() -> None:
    assert plan_for([0.1, 0.1], [1.0, 1.1, 1.2, 1.3, 1.4]) == [0, 0]


def test_without_targets_nothing_changes() -> None:
    assert plan_for([np.inf, np.inf], [1.0, 1.0, 1.0, 1.0, 1.0]) == [2, 2]
