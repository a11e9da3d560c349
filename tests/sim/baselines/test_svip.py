"""SVIP's rule, and what all live stopping rules share."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.sim.baselines.stopping.svip import SvipOptions, SvipPolicy
from adaptive_spec.step import SpecPlan, StepContext

from .baseline_support import (
    KMAX,
    context,
    live_drafts,
    make,
    simulated,
    stays_causal,
)

SVIP = "svip"
LIMIT = 0.3**2 / 0.15
"""Entropy above which it stops."""


@pytest.mark.parametrize(
    ("entropy", "kept"),
    [
        ([0.1, 0.1, 0.1, 0.1, 0.1], 5),
        ([LIMIT - 1e-6, LIMIT + 1e-6, 0.1, 0.1, 0.1], 2),
        ([3.0, 0.1, 0.1, 0.1, 0.1], 1),
    ],
)
def test_drafting_ends_after_the_first_position_of_high_entropy(
    entropy: list[float], kept: int
) -> None:
    signal = np.array([entropy])
    unsure = np.full_like(signal, np.nan)
    assert live_drafts(make(SVIP), unsure, signal) == ([kept], kept)
    assert make(SVIP).plan(context(entropy=signal)).verify.tolist() == [kept]


def test_it_does_not_look_at_the_maximum_probability() -> None:
    signal = np.full((1, KMAX), 0.1)
    assert live_drafts(make(SVIP), np.full((1, KMAX), 0.01), signal)[0] == [5]


def test_requests_stop_one_by_one_and_the_drafter_runs_for_the_last() -> None:
    entropy = np.full((3, KMAX), 0.1)
    entropy[0, 0] = entropy[2, 3] = 4.0
    assert live_drafts(make(SVIP), np.full((3, KMAX), np.nan), entropy) == ([1, 5, 4], 5)


def test_what_was_drafted_is_verified() -> None:
    # Drafting ended at 2 by another signal than the one that comes with the step.
    plan = make(SVIP).plan(context(entropy=np.full((1, 5), 0.1), draft_available=np.array([2])))
    assert plan.verify.tolist() == [2]
    assert plan.draft_depth == KMAX


def test_at_most_max_drafts_are_made() -> None:
    plan = make(SVIP, max_drafts=3).plan(context(entropy=np.full((1, 5), 0.1)))
    assert (plan.verify.tolist(), plan.draft_depth) == ([3], 3)


def test_without_entropy_the_engines_k_runs() -> None:
    assert make(SVIP).plan(context(2, engine_k=3)).verify.tolist() == [3, 3]
    only_confidence = context(1, confidence=[[0.1] * 5], engine_k=3)
    assert make(SVIP).plan(only_confidence).verify.tolist() == [3]


def test_one_k_per_batch_is_rounded_up_to_the_ladder() -> None:
    ladder = Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=(0, 1, 3, 5))
    entropy = np.full((2, KMAX), 4.0)
    entropy[1, 0] = 0.1  # wants 2
    plan = make(SVIP).plan(context(2, capability=ladder, entropy=entropy))
    assert plan.verify.tolist() == [3, 3]


def test_no_position_depends_on_deeper_ones_on_a_sparse_ladder() -> None:
    stays_causal(make(SVIP), Level.UNIFORM, (1, 5))


def test_rounding_down_to_the_ladder_would_be_told_apart() -> None:
    class RoundsDown(SvipPolicy):
        def plan(self, context: StepContext) -> SpecPlan:
            free = Capability(level=Level.FULL, max_draft_tokens=KMAX)
            wanted = super().plan(msgspec.structs.replace(context, capability=free)).verify
            k = max(k for k in context.capability.uniform_values if k <= max(wanted.max(), 1))
            verify = np.minimum(context.draft_available, k)
            return msgspec.structs.replace(super().plan(context), verify=verify)

    with pytest.raises(AssertionError):
        stays_causal(RoundsDown(SvipOptions()), Level.UNIFORM, (1, 5))


def test_it_drafts_less_where_the_drafter_is_unsure() -> None:
    sure, unsure = (simulated(SVIP, acceptance=f"model:steady-{p}") for p in (80, 10))
    assert unsure.mean_k < 0.8 * sure.mean_k
    assert unsure.mean_k >= 0.9  # never off


def test_an_engine_that_can_not_stop_its_drafter_verifies_less() -> None:
    assert simulated(SVIP, level=Level.VERIFY).mean_k < 0.6 * KMAX
