"""The planner is exact: it equals a search over every plan there is, by the worth of tokens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.planning.planner import Admission, best_plan
from adaptive_spec.policies.planning.search import admit, rank
from adaptive_spec.policies.planning.shared_k import best_admission, token_worth
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
            None if (case["weights"] == 1.0).all() else case["weights"],
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
    limit, engine = np.full(3, 2), Capability(level=Level.FULL, max_draft_tokens=2)
    verify = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0])  # four drafts are free
    found = best_admission(
        np.full((2, 3), 0.5), np.ones(3), limit, limit, verify, np.zeros(3), engine
    )
    assert found.verify.tolist() == [2, 1, 1]


def test_drafts_at_hand_limit_this_step_but_not_the_next_depth() -> None:
    engine = Capability(level=Level.FULL, max_draft_tokens=3)
    limits, costs = (np.array([3, 3]), np.array([0, 1])), (np.ones(7), 0.01 * np.arange(4))
    found = best_admission(np.full((3, 2), 0.9), np.ones(2), *limits, *costs, engine)
    assert found.verify.tolist() == [0, 1]
    assert found.draft_depth == 3


def test_an_empty_batch_has_a_plan() -> None:
    empty = np.zeros(0, dtype=np.int64)
    engine = Capability(level=Level.FULL, max_draft_tokens=2)
    costs = np.ones(1), np.zeros(3)
    found = best_admission(np.zeros((2, 0)), np.zeros(0), empty, empty, *costs, engine)
    assert found.verify.size == 0


def test_the_worth_of_a_token_is_the_seconds_that_it_takes() -> None:
    """At the best K of each; tokens together count as many as they are."""
    random = np.random.default_rng(0)
    engine = Capability(level=Level.FULL, max_draft_tokens=4)
    survival = np.cumprod(random.uniform(0.1, 1.0, (4, 5)), axis=0)
    verify, drafting = 5.0 + 0.3 * np.arange(21), 0.02 * np.arange(5)
    tokens = np.concatenate([np.ones((1, 5)), 1.0 + np.cumsum(survival, axis=0)])
    rates = tokens / (verify[::5] + drafting)[:, None]
    emitted = tokens[rates.argmax(axis=0), np.arange(5)]
    expected = 1.0 / rates.max(axis=0)
    found = token_worth(survival, verify, drafting, engine)
    assert found == pytest.approx(expected * emitted.sum() / (expected @ emitted))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 40),
    kmax=st.integers(1, 8),
    level=st.sampled_from([Level.VERIFY, Level.FULL]),
    dear=st.floats(0.0, 1.0),
    opted_out=st.sampled_from([0.0, 0.4]),
)
def test_it_chooses_what_the_planner_does(
    seed: int, batch: int, kmax: int, level: Level, dear: float, opted_out: float
) -> None:
    random = np.random.default_rng(seed)
    engine = Capability(level=level, max_draft_tokens=kmax)
    survival = np.cumprod(random.uniform(0.01, 0.995, (kmax, batch)), axis=0)
    taking_part = random.random(batch) >= opted_out
    taking_part[random.integers(batch)] = True
    possible, available = random.integers(0, kmax + 1, (2, batch)) * taking_part
    verify_seconds = 1.0 + np.cumsum(random.exponential(dear / batch, batch * kmax + 1))
    drafting = np.cumsum(random.uniform(0.0, 0.1, kmax + 1))
    depths = np.arange(kmax + 1) if engine.steers_depth else np.array([kmax])
    weights = np.empty(batch)
    costs = verify_seconds, drafting, depths, engine.steers_depth, taking_part
    verify, depth, value, seconds, tokens, by_worth = best_plan(
        survival, possible, available, *costs, weights
    )
    # Whether to draft at all is not decided by what a token is worth.
    assert verify.any() or (depth and engine.steers_depth) or not by_worth
    worth = token_worth(survival, verify_seconds, drafting, engine, taking_part)
    assert weights == pytest.approx(worth if by_worth else taking_part.astype(float))
    expected = best_admission(
        survival * weights, weights, possible, available, verify_seconds, drafting, engine
    )
    assert (verify.tolist(), depth) == (expected.verify.tolist(), expected.draft_depth)
    assert (value, seconds) == pytest.approx((expected.tokens, expected.seconds))
    reached = np.arange(kmax)[:, None] < expected.verify
    assert tokens == pytest.approx(batch + survival[reached].sum())


@settings(max_examples=3 * settings().max_examples)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(0, 70) | st.integers(200, 220),
    kmax=st.integers(1, 8),
    coarse=st.booleans(),
)
def test_the_sort_and_the_search_are_those_in_plain_python(
    seed: int, batch: int, kmax: int, coarse: bool
) -> None:
    """Batches of 200 and more have the drafts from which another way of sorting runs."""
    random = np.random.default_rng(seed)
    hazard = random.random((kmax, batch))
    if coarse:  # many exact ties
        hazard = np.round(hazard * 4) / 4
    values = np.ascontiguousarray(np.cumprod(hazard, axis=0))
    possible = random.integers(0, kmax + 1, batch)
    available = random.integers(0, kmax + 1, batch)
    verify = random.uniform(1.0, 1.0 + random.random(), batch * kmax + 1)
    drafting = np.cumsum(random.uniform(0.0, 0.1, kmax + 1))
    limit = np.maximum(possible, available)

    drafts = [(j, i) for i in range(batch) for j in range(limit[i])]
    drafts.sort(key=lambda at: (-np.float32(values[at]), *at))
    position, request, value = rank(values, limit)
    assert list(zip(position.tolist(), request.tolist(), strict=True)) == drafts
    assert value.tolist() == [values[at] for at in drafts]

    def ratios(usable: list[tuple[int, int]], depth: int) -> np.ndarray:
        total = batch + np.cumsum([0.0, *(values[at] for at in usable)])
        return total / (verify[: len(total)] + drafting[depth])

    best = [
        ratios([(j, i) for j, i in drafts if j < min(depth, possible[i])], depth).max()
        for depth in range(kmax + 1)
    ]
    costs = float(batch), verify, drafting, np.arange(kmax + 1)
    chosen, depth, admitted, ratio = admit(position, request, value, possible, available, *costs)
    assert ratio == pytest.approx(max(best))
    assert best[depth] == pytest.approx(ratio)
    usable = [(j, i) for j, i in drafts if j < available[i]]
    number, each = int(chosen.sum()), ratios(usable, depth)
    assert each[number] == pytest.approx(each.max())
    assert chosen.tolist() == [[i for _, i in usable[:number]].count(i) for i in range(batch)]
    assert admitted == pytest.approx(sum(values[at] for at in usable[:number]))


def test_drafts_are_ranked_by_value_then_position_then_request() -> None:
    values = np.array([[0.5, 0.9, 0.5], [0.5, 0.1, -0.0]])
    position, request, value = rank(values, np.array([2, 1, 2]))
    assert position.tolist() == [0, 0, 0, 1, 1]
    assert request.tolist() == [1, 0, 2, 0, 2]
    assert value.tolist() == [0.9, 0.5, 0.5, 0.5, 0.0]


def test_narrow_strided_integers_are_taken() -> None:
    limit = np.repeat(np.array([2, 1]), 3).astype(np.int32)[::3]
    position, _, _ = rank(np.array([[0.5, 0.9], [0.4, 0.1]]), limit)
    assert position.tolist() == [0, 0, 1]
