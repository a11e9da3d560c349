"""Arctic Inference's rules for suffix decoding."""

import numpy as np
import pytest

from adaptive_spec import Capability, Level, Mode

from .baseline_support import (
    KMAX,
    context,
    make,
    simulated,
)

ARCTIC = "arctic_suffix"


def test_all_that_the_look_up_proposed_is_verified() -> None:
    at_hand = np.array([0, 5, 2])
    assert make(ARCTIC).plan(context(3, draft_available=at_hand)).verify.tolist() == [0, 5, 2]


def test_beyond_the_soft_cap_the_first_requests_draft() -> None:
    plan = make(ARCTIC, disable_by_batch_size=2).plan(context(4))
    assert (plan.verify.tolist(), plan.draft_depth) == ([5, 5, 0, 0], KMAX)
    assert make(ARCTIC).plan(context(70)).verify.tolist() == [5] * 64 + [0] * 6
    assert make(ARCTIC, disable_by_batch_size=None).plan(context(70)).verify.tolist() == [5] * 70


@pytest.mark.parametrize(("batch", "k"), [(3, 5), (4, 0), (5, 0)])
def test_from_the_hard_cap_on_nobody_drafts_but_the_drafter_stays_in_step(
    batch: int, k: int
) -> None:
    plan = make(ARCTIC, hard_disable_by_batch_size=4).plan(context(batch))
    assert plan.verify.tolist() == [k] * batch
    assert plan.mode is (Mode.ON if k else Mode.OFF_WARM)


def test_the_hard_cap_goes_before_the_soft_one() -> None:
    policy = make(ARCTIC, disable_by_batch_size=2, hard_disable_by_batch_size=3)
    assert policy.plan(context(3)).verify.tolist() == [0, 0, 0]


def test_drafts_end_where_their_probability_falls_below_the_least() -> None:
    shown = [[0.5, 0.5, 0.5, 0.5, 0.5], [0.1, 0.9, 0.9, 0.9, 0.9]]
    policy = make(ARCTIC, min_token_prob=0.1)
    assert policy.plan(context(2, confidence=shown)).verify.tolist() == [3, 1]


def test_one_k_per_batch_gets_as_many_drafts_spread_evenly() -> None:
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=5)
    policy = make(ARCTIC, disable_by_batch_size=2)
    assert policy.plan(context(4, capability=uniform)).verify.tolist() == [2] * 4
    assert policy.plan(context(2, capability=uniform)).verify.tolist() == [5] * 2


def test_it_verifies_what_a_suffix_drafter_proposes_up_to_the_cap() -> None:
    free = simulated(ARCTIC, drafter="suffix", auc=None)
    capped = simulated(ARCTIC, drafter="suffix", auc=None, disable_by_batch_size=2)
    assert 0.4 * free.mean_k < capped.mean_k < 0.6 * free.mean_k


def test_it_proposes_less_where_the_confidence_is_low() -> None:
    loose, strict = (simulated(ARCTIC, drafter="suffix", min_token_prob=p) for p in (0.01, 0.5))
    assert strict.mean_k < 0.9 * loose.mean_k
