"""Rules of transformers, llama.cpp and Arctic Inference that end a draft."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec import Capability, Level, Mode
from adaptive_spec.policy import Policy
from adaptive_spec.sim.baselines.stopping.hf_confidence import cheapest_threshold
from adaptive_spec.sim.baselines.stopping.llama_p_min import LlamaPMinOptions, LlamaPMinPolicy
from adaptive_spec.step import SpecPlan, StepContext

from .baseline_support import KMAX, context, finished, make, simulated, stays_causal

CONFIDENCE = "hf_confidence"


def step(policy: Policy, number: int, shown: list[float], accepted: int) -> None:
    seen = context(step=number, confidence=[shown])
    verified = int(policy.plan(seen).verify[0])
    policy.observe(finished([verified], [min(accepted, verified)], step=number, seen=seen))


def test_drafting_ends_after_the_first_draft_below_the_threshold() -> None:
    plan = make(CONFIDENCE).plan(context(confidence=[[0.9, 0.4, 0.39, 0.9, 0.9]]))
    assert (plan.verify.tolist(), plan.draft_depth) == ([3], KMAX)


SHOWN = [0.9, 0.8, 0.7, 0.6, 0.5]


@pytest.mark.parametrize(
    ("options", "steps", "threshold"),
    [
        pytest.param({}, [(SHOWN, 5)], 0.4, id="five, all accepted"),
        # Accepted at .5 and above, rejected at .45: .5 tells them apart without an error.
        pytest.param({}, [(SHOWN, 5), ([0.45, *[0.9] * 4], 0)], 0.5, id="six of both kinds"),
        # Only .99 is judged.
        pytest.param(
            {}, [(SHOWN, 4), ([0.99, 0.98, 0.97, 0.96, 0.95], 0)], 0.6, id="behind a rejection"
        ),
        # No trace of the rejected .9.
        pytest.param(
            {"window": 6},
            [([0.9] * KMAX, 0)] * 10 + [([0.6, 0.6, 0.6, 0.3, 0.3], 3)] * 4,
            0.6,
            id="a bounded history",
        ),
        pytest.param({"refit": False}, [(SHOWN, 2)] * 20, 0.4, id="without refit"),
    ],
)
def test_the_threshold_follows_what_was_judged(
    options: dict[str, Any], steps: list[tuple[list[float], int]], threshold: float
) -> None:
    policy = make(CONFIDENCE, **options)
    for number, (shown, accepted) in enumerate(steps):
        step(policy, number, shown, accepted)
    assert policy.threshold == threshold


def test_missing_a_good_draft_weighs_three_times_a_bad_one_let_through() -> None:
    shown = np.array([0.9, 0.8, 0.7, 0.6])
    # Of two accepted and two rejected: giving up .6 saves one of two false positives.
    assert cheapest_threshold(shown, np.array([True, False, False, True])) == 0.6
    assert cheapest_threshold(shown, np.array([True, True, False, False])) == 0.8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=2, max_size=40))
def test_the_threshold_is_the_cheapest_of_all(rows: list[tuple[int, bool]]) -> None:
    shown = np.array([value / 10 for value, _ in rows])
    taken = np.array([flag for _, flag in rows])
    if taken.all() or not taken.any():
        return

    def cost(threshold: float) -> float:
        passed = shown >= threshold
        return float(np.mean(passed[~taken]) + 3.0 * np.mean(~passed[taken]))

    found = cheapest_threshold(shown, taken)
    assert cost(found) == pytest.approx(min(cost(value) for value in shown.tolist()))


def test_the_threshold_is_scikit_learns_roc_choice() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    random = np.random.default_rng(2)
    for _ in range(50):
        shown = np.round(random.random(60), 2)
        taken = random.random(60) < shown
        false, true, thresholds = metrics.roc_curve(taken, shown)
        expected = thresholds[np.argmin(false + 3 * (1 - true))]
        assert cheapest_threshold(shown, taken) == pytest.approx(float(expected))


def test_the_refitted_threshold_decides_from_the_next_step_on() -> None:
    policy = make(CONFIDENCE)
    step(policy, 0, [0.9, 0.8, 0.7, 0.6, 0.5], 4)
    step(policy, 1, [0.55, 0.9, 0.9, 0.9, 0.9], 0)  # the threshold rises to .6
    shown = [0.5, 0.9, 0.9, 0.9, 0.9]
    assert policy.plan(context(step=2, confidence=[shown])).verify.tolist() == [1]


def test_without_confidence_the_engines_k_runs() -> None:
    assert make(CONFIDENCE).plan(context(2, engine_k=3)).verify.tolist() == [3, 3]


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


P_MIN = "llama_p_min"


AT_HALF = {"p_min": 0.5, "max_drafts": 5}
LADDER = Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=(0, 1, 3, 5))


@pytest.mark.parametrize(
    ("options", "seen", "planned"),
    [
        (AT_HALF, context(confidence=[[0.9] * 5]), ([5], KMAX)),
        (AT_HALF, context(confidence=[[0.9, 0.5, 0.49, 0.9, 0.9]]), ([2], KMAX)),
        (AT_HALF, context(confidence=[[0.49, 0.9, 0.9, 0.9, 0.9]]), ([0], KMAX)),
        (AT_HALF, context(confidence=[[0.9, np.nan, 0.9, 0.1, 0.9]]), ([3], KMAX)),
        (AT_HALF, context(confidence=[[0.9] * 5], draft_available=np.array([2])), ([2], KMAX)),
        ({}, context(confidence=[[0.01] * 5]), ([3], 3)),
        ({"p_min": 0.5}, context(2, engine_k=4), ([4, 4], 4)),
        # They want 0 and 2, rounded up to the ladder.
        (
            AT_HALF,
            context(2, capability=LADDER, confidence=[[0.1] * 5, [0.9, 0.9, 0.1, 0.9, 0.9]]),
            ([3, 3], 5),
        ),
    ],
)
def test_the_unlikely_draft_is_dropped_and_all_after_it(
    options: dict[str, float], seen: StepContext, planned: tuple[list[int], int]
) -> None:
    plan = make(P_MIN, **options).plan(seen)
    assert (plan.verify.tolist(), plan.draft_depth) == planned


def test_no_position_depends_on_deeper_ones_on_a_sparse_ladder() -> None:
    stays_causal(make(P_MIN, **AT_HALF), Level.UNIFORM, (1, 5))


def test_rounding_down_to_the_ladder_would_be_told_apart() -> None:
    class RoundsDown(LlamaPMinPolicy):
        def plan(self, context: StepContext) -> SpecPlan:
            free = Capability(level=Level.FULL, max_draft_tokens=KMAX)
            wanted = super().plan(msgspec.structs.replace(context, capability=free)).verify
            k = max(k for k in context.capability.uniform_values if k <= max(wanted.max(), 1))
            verify = np.minimum(context.draft_available, k)
            return msgspec.structs.replace(super().plan(context), verify=verify)

    policy = RoundsDown(LlamaPMinOptions(p_min=0.5, max_drafts=5))
    with pytest.raises(AssertionError):
        stays_causal(policy, Level.UNIFORM, (1, 5))


def test_a_higher_p_min_verifies_fewer_and_better_drafts() -> None:
    low, high = (simulated(P_MIN, p_min=p, max_drafts=5) for p in (0.2, 0.8))
    assert high.mean_k < 0.7 * low.mean_k
    assert high.accepted_per_step / high.mean_k > low.accepted_per_step / low.mean_k


ARCTIC = "arctic_suffix"


UNIFORM = Capability(level=Level.UNIFORM, max_draft_tokens=5)
UNSURE = [[0.5, 0.5, 0.5, 0.5, 0.5], [0.1, 0.9, 0.9, 0.9, 0.9]]


@pytest.mark.parametrize(
    ("options", "seen", "verified"),
    [
        pytest.param({}, context(3, draft_available=np.array([0, 5, 2])), [0, 5, 2], id="at hand"),
        pytest.param({"disable_by_batch_size": 2}, context(4), [5, 5, 0, 0], id="a soft cap"),
        pytest.param({}, context(70), [5] * 64 + [0] * 6, id="the soft cap by default"),
        pytest.param({"disable_by_batch_size": None}, context(70), [5] * 70, id="no soft cap"),
        pytest.param(
            {"disable_by_batch_size": 2, "hard_disable_by_batch_size": 3},
            context(3),
            [0, 0, 0],
            id="the hard cap goes first",
        ),
        pytest.param(
            {"min_token_prob": 0.1}, context(2, confidence=UNSURE), [3, 1], id="unlikely drafts"
        ),
        pytest.param(
            {"disable_by_batch_size": 2},
            context(4, capability=UNIFORM),
            [2] * 4,
            id="spread evenly",
        ),
        pytest.param(
            {"disable_by_batch_size": 2}, context(2, capability=UNIFORM), [5] * 2, id="at the cap"
        ),
    ],
)
def test_what_is_verified(options: dict[str, Any], seen: StepContext, verified: list[int]) -> None:
    plan = make(ARCTIC, **options).plan(seen)
    depth = KMAX if "min_token_prob" in options else max(verified)
    assert (plan.verify.tolist(), plan.draft_depth) == (verified, depth)


@pytest.mark.parametrize(("batch", "k"), [(3, 5), (4, 0), (5, 0)])
def test_from_the_hard_cap_on_nobody_drafts_but_the_drafter_stays_in_step(
    batch: int, k: int
) -> None:
    plan = make(ARCTIC, hard_disable_by_batch_size=4).plan(context(batch))
    assert plan.verify.tolist() == [k] * batch
    assert plan.mode is (Mode.ON if k else Mode.OFF_WARM)


def test_it_verifies_what_a_suffix_drafter_proposes_up_to_the_cap() -> None:
    free = simulated(ARCTIC, drafter="suffix", auc=None)
    capped = simulated(ARCTIC, drafter="suffix", auc=None, disable_by_batch_size=2)
    assert 0.4 * free.mean_k < capped.mean_k < 0.6 * free.mean_k


def test_it_proposes_less_where_the_confidence_is_low() -> None:
    loose, strict = (simulated(ARCTIC, drafter="suffix", min_token_prob=p) for p in (0.01, 0.5))
    assert strict.mean_k < 0.9 * loose.mean_k
