"""The planner is exact: it equals a search over every plan there is, by the worth of tokens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.planning.planner import Admission, best_plan, engine_of, worth
from adaptive_spec.policies.planning.search import admit, best_admission, rank
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
        found = best_admission(
            survival * case["weights"],
            case["weights"].sum(),
            case["caps"],
            available,
            case["verify"],
            case["drafting"],
            *engine_of(capability),
        )
        return Admission(*found)

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
    limit, engine = np.full(3, 2), engine_of(Capability(level=Level.FULL, max_draft_tokens=2))
    verify = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0])  # four drafts are free
    values, costs = np.full((2, 3), 0.5), (verify, np.zeros(3))
    assert best_admission(values, 3.0, limit, limit, *costs, *engine)[0].tolist() == [2, 1, 1]


def test_drafts_at_hand_limit_this_step_but_not_the_next_depth() -> None:
    engine = engine_of(Capability(level=Level.FULL, max_draft_tokens=3))
    limits, costs = (np.array([3, 3]), np.array([0, 1])), (np.ones(7), 0.01 * np.arange(4))
    chosen, depth, *_ = best_admission(np.full((3, 2), 0.9), 2.0, *limits, *costs, *engine)
    assert chosen.tolist() == [0, 1]
    assert depth == 3


@pytest.mark.parametrize("level", list(Level))
def test_an_empty_batch_has_a_plan(level: Level) -> None:
    empty = np.zeros(0, dtype=np.int64)
    engine = engine_of(Capability(level=level, max_draft_tokens=2, ragged_penalty=0.1))
    costs = np.ones(1), np.zeros(3)
    assert not best_admission(np.zeros((2, 0)), 0.0, empty, empty, *costs, *engine)[0].size


def test_the_worth_of_a_token_is_the_seconds_that_it_takes() -> None:
    """At the best K of each; tokens together count as many as they are."""
    random = np.random.default_rng(0)
    survival = np.cumprod(random.uniform(0.1, 1.0, (4, 5)), axis=0)
    verify, drafting = 5.0 + 0.3 * np.arange(21), 0.02 * np.arange(5)
    tokens = np.concatenate([np.ones((1, 5)), 1.0 + np.cumsum(survival, axis=0)])
    rates = tokens / (verify[::5] + drafting)[:, None]
    emitted = tokens[rates.argmax(axis=0), np.arange(5)]
    expected = 1.0 / rates.max(axis=0)
    found = worth(survival, verify[::5] + drafting)
    assert found == pytest.approx(expected * emitted.sum() / (expected @ emitted))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 40),
    kmax=st.integers(1, 8),
    level=st.sampled_from(list(Level)),
    penalty=st.sampled_from([0.0, 0.1]),
    dear=st.floats(0.0, 1.0),
    opted_out=st.sampled_from([0.0, 0.4]),
    copied=st.sampled_from([0.0, 1.0]),
)
def test_tokens_are_weighed_and_the_depth_is_chosen_by_what_is_ahead(
    seed: int,
    batch: int,
    kmax: int,
    level: Level,
    penalty: float,
    dear: float,
    opted_out: float,
    copied: float,
) -> None:
    random = np.random.default_rng(seed)
    engine = engine_of(Capability(level=level, max_draft_tokens=kmax, ragged_penalty=penalty))
    _, one_k, steers, _ = engine
    survival = np.cumprod(random.uniform(0.01, 0.995, (kmax, batch)), axis=0)
    taking_part = random.random(batch) >= opted_out
    taking_part[random.integers(batch)] = True
    possible, available = random.integers(0, kmax + 1, (2, batch)) * taking_part
    verify_seconds = 1.0 + np.cumsum(random.exponential(dear / batch, batch * kmax + 1))
    drafting = np.cumsum(random.uniform(0.0, 0.1, kmax + 1))
    ahead, more = np.zeros((0, 0)), np.zeros(0)
    if copied and not one_k:
        more = random.random(batch)
        ahead = survival * (1.0 - more)
    costs, weights = (verify_seconds, drafting), np.empty(batch)
    verify, depth, value, seconds, tokens, by_worth = best_plan(
        survival, possible, available, *costs, *engine, ahead, more, taking_part, weights
    )
    # Whether to draft at all is not decided by what a token is worth.
    assert verify.any() or (depth and steers) or not by_worth
    passes = drafting if steers else np.full_like(drafting, drafting[-1])
    own = worth(survival, verify_seconds[:: taking_part.sum()][: kmax + 1] + passes) * taking_part
    assert weights == pytest.approx(own if by_worth else taking_part.astype(float))
    if not by_worth and taking_part.sum() > 1 and not len(ahead):
        found = best_admission(survival * own, own.sum(), possible, available, *costs, *engine)
        assert not found[0].any()
        assert not (found[1] and steers)
    if len(ahead):
        base = weights @ (1.0 + more)
        limits = possible, possible
        assert depth == best_admission(ahead * weights, base, *limits, *costs, *engine)[1]
        engine = np.array([depth]), *engine[1:]
    expected = best_admission(
        survival * weights, weights.sum(), possible, available, *costs, *engine
    )
    assert (verify.tolist(), depth) == (expected[0].tolist(), expected[1])
    assert (value, seconds) == pytest.approx(expected[2:])
    reached = np.arange(kmax)[:, None] < verify
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
