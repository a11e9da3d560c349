"""llama.cpp's p-min rule."""

import msgspec
import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.sim.baselines.stopping.llama_p_min import LlamaPMinOptions, LlamaPMinPolicy
from adaptive_spec.step import SpecPlan, StepContext

from .baseline_support import (
    KMAX,
    context,
    make,
    simulated,
    stays_causal,
)

P_MIN = "llama_p_min"


@pytest.mark.parametrize(
    ("confidence", "kept"),
    [
        ([0.9, 0.9, 0.9, 0.9, 0.9], 5),
        ([0.9, 0.5, 0.49, 0.9, 0.9], 2),
        ([0.49, 0.9, 0.9, 0.9, 0.9], 0),
    ],
)
def test_the_unlikely_draft_is_dropped_and_all_after_it(confidence: list[float], kept: int) -> None:
    plan = make(P_MIN, p_min=0.5, max_drafts=5).plan(context(confidence=[confidence]))
    assert (plan.verify.tolist(), plan.draft_depth) == ([kept], KMAX)


def test_what_was_drafted_is_verified() -> None:
    at_hand = np.array([2])
    plan = make(P_MIN, p_min=0.5, max_drafts=5).plan(
        context(confidence=np.full((1, KMAX), 0.9), draft_available=at_hand)
    )
    assert (plan.verify.tolist(), plan.draft_depth) == ([2], KMAX)


def test_one_k_per_batch_is_rounded_up_to_the_ladder() -> None:
    ladder = Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=(0, 1, 3, 5))
    shown = [[0.1] * 5, [0.9, 0.9, 0.1, 0.9, 0.9]]  # they want 0 and 2
    plan = make(P_MIN, p_min=0.5, max_drafts=5).plan(
        context(2, capability=ladder, confidence=shown)
    )
    assert plan.verify.tolist() == [3, 3]


def test_no_position_depends_on_deeper_ones_on_a_sparse_ladder() -> None:
    stays_causal(make(P_MIN, p_min=0.5, max_drafts=5), Level.UNIFORM, (1, 5))


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


def test_by_default_it_makes_three_drafts_and_never_stops() -> None:
    plan = make(P_MIN).plan(context(confidence=np.full((1, KMAX), 0.01)))
    assert (plan.verify.tolist(), plan.draft_depth) == ([3], 3)


def test_an_unknown_confidence_is_no_reason_to_stop() -> None:
    policy = make(P_MIN, p_min=0.5, max_drafts=5)
    signal = np.array([[0.9, np.nan, 0.9, 0.1, 0.9]])
    assert policy.plan(context(confidence=signal)).verify.tolist() == [3]


def test_without_confidence_the_engines_k_runs() -> None:
    assert make(P_MIN, p_min=0.5).plan(context(2, engine_k=4)).verify.tolist() == [4, 4]


def test_a_higher_p_min_verifies_fewer_and_better_drafts() -> None:
    low, high = (simulated(P_MIN, p_min=p, max_drafts=5) for p in (0.2, 0.8))
    assert high.mean_k < 0.7 * low.mean_k
    assert high.accepted_per_step / high.mean_k > low.accepted_per_step / low.mean_k
