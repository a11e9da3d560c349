"""The planner is exact: it equals a search over every plan there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.planning.planner import Admission
from adaptive_spec.policies.planning.shared_k import best_admission
from adaptive_spec.step import Capability, Level


@st.composite
def instances(draw: st.DrawFn) -> dict[str, object]:
    """Small batches with certain, impossible and tied drafts, on easy and on nasty costs."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, kmax = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    hazard = random.random((kmax, batch))
    hazard[random.random((kmax, batch)) < 0.15] = 1.0
    hazard[random.random((kmax, batch)) < 0.1] = 0.0
    hazard[random.random((kmax, batch)) < 0.2] = 0.5
    weights = 1.0 + random.integers(0, 3, batch) * random.random()
    if draw(st.booleans()):
        weights[:] = 1.0
    caps = random.integers(0, kmax + 1, batch)
    size = batch * kmax
    shape = draw(st.sampled_from(["linear", "staircase", "not monotone", "flat"]))
    verify = 1.0 + 0.1 * np.arange(size + 1)
    if shape == "staircase":
        verify = 1.0 + 0.4 * np.sort(random.integers(0, 4, size + 1))
    elif shape == "not monotone":
        verify = random.uniform(0.5, 2.0, size + 1)
    elif shape == "flat":
        verify[:] = 1.0
    drafting = np.cumsum(random.uniform(0.0, 0.3, kmax + 1))
    ladder = tuple(sorted({0, kmax, int(random.integers(0, kmax + 1))}))
    return {
        "survival": np.ascontiguousarray(np.cumprod(hazard, axis=0)),
        "weights": weights,
        "caps": caps.astype(np.int64),
        "verify": verify,
        "drafting": drafting,
        "level": draw(st.sampled_from(list(Level))),
        "ladder": ladder if draw(st.booleans()) else (),
        "depth_follows": draw(st.booleans()),
        "penalty": draw(st.sampled_from([0.0, 0.0, 0.05, 0.3])),
    }


def brute_force(case: dict) -> float:
    """The best ratio over every K vector the engine could run."""
    survival, weights, caps = case["survival"], case["weights"], case["caps"]
    batch = survival.shape[1]
    capability = capability_of(case)
    best = -np.inf
    for ks in itertools.product(*[range(cap + 1) for cap in caps]):
        value = sum(weights) + sum(weights[i] * survival[: ks[i], i].sum() for i in range(batch))
        for depth in depths_that_run(ks, caps, capability):
            verify = case["verify"][sum(ks)]
            if len(set(ks)) > 1:
                verify = verify * (1.0 + case["penalty"])
            best = max(best, value / (verify + case["drafting"][depth]))
    return best


def capability_of(case: dict) -> Capability:
    return Capability(
        level=case["level"],
        max_draft_tokens=len(case["survival"]),
        ladder=case["ladder"],
        depth_follows=case["depth_follows"],
        ragged_penalty=case["penalty"],
    )


def depths_that_run(ks: tuple[int, ...], caps: np.ndarray, capability: Capability) -> list[int]:
    uniform = ks in [tuple(min(k, cap) for cap in caps.tolist()) for k in capability.uniform_values]
    if capability.level is Level.UNIFORM and not uniform:
        return []
    if not capability.steers_depth:
        return [capability.max_draft_tokens]
    if capability.level is Level.FULL:
        return [depth for depth in capability.uniform_values if depth >= max(ks)]
    return [k for k in capability.uniform_values if ks == tuple(min(k, cap) for cap in caps)]


@settings(max_examples=25 * settings().max_examples, deadline=None)
@given(case=instances())
def test_plan_equals_brute_force(case: dict) -> None:
    survival = case["survival"]
    batch = survival.shape[1]
    capability = capability_of(case)

    def plan(available: np.ndarray) -> Admission:
        return best_admission(
            np.ascontiguousarray(survival * case["weights"]),
            case["weights"],
            case["caps"],
            available,
            case["verify"],
            case["drafting"],
            capability,
        )

    depth = plan(case["caps"]).draft_depth
    # One step later the engine offers what was drafted to that depth.
    admission = plan(np.minimum(case["caps"], depth))
    assert admission.draft_depth == depth
    ks = tuple(admission.verify.tolist())
    assert all(0 <= k <= cap for k, cap in zip(ks, case["caps"], strict=True))
    assert admission.draft_depth in depths_that_run(ks, case["caps"], capability)
    # The plan's own claim, recomputed from the definition.
    value = case["weights"].sum() + sum(
        case["weights"][i] * survival[: ks[i], i].sum() for i in range(batch)
    )
    verify = case["verify"][sum(ks)] * (1.0 + case["penalty"] * (len(set(ks)) > 1))
    reached = value / (verify + case["drafting"][admission.draft_depth])
    assert reached == pytest.approx(brute_force(case), rel=2e-7)


def test_ties_go_to_the_shallower_position_and_then_to_request_order() -> None:
    values = np.full((2, 3), 0.5)
    limit = np.full(3, 2, dtype=np.int64)
    verify = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0])  # four drafts are free
    admission = best_admission(
        values,
        np.ones(3),
        limit,
        limit,
        verify,
        np.zeros(3),
        Capability(level=Level.FULL, max_draft_tokens=2),
    )
    assert admission.verify.tolist() == [2, 1, 1]


def test_drafts_at_hand_limit_this_step_but_not_the_next_depth() -> None:
    values = np.full((3, 2), 0.9)
    admission = best_admission(
        values,
        np.ones(2),
        np.array([3, 3]),
        np.array([0, 1]),
        np.ones(7),
        np.array([0.0, 0.01, 0.02, 0.03]),
        Capability(level=Level.FULL, max_draft_tokens=3),
    )
    assert admission.verify.tolist() == [0, 1]
    assert admission.draft_depth == 3


def test_requests_without_weights_count_as_one_each() -> None:
    random = np.random.default_rng(3)
    values = np.cumprod(random.random((4, 7)), axis=0)
    drafts = np.full(7, 4, dtype=np.int64)
    costs = 1.0 + 0.05 * np.arange(29), 0.1 * np.arange(5)
    capability = Capability(level=Level.FULL, max_draft_tokens=4)
    found = [
        best_admission(values, weights, drafts, drafts, *costs, capability)
        for weights in (None, np.ones(7))
    ]
    assert found[0].verify.tolist() == found[1].verify.tolist()
    assert found[0].goodput == found[1].goodput


def test_an_empty_batch_has_a_plan() -> None:
    empty = np.zeros(0, dtype=np.int64)
    admission = best_admission(
        np.zeros((2, 0)),
        np.zeros(0),
        empty,
        empty,
        np.ones(1),
        np.zeros(3),
        Capability(level=Level.FULL, max_draft_tokens=2),
    )
    assert admission.verify.size == 0
