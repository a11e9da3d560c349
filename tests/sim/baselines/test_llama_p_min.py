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
