"""Arctic Inference's rules for suffix decoding."""

from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level, Mode
from adaptive_spec.step import StepContext

from .baseline_support import (
    KMAX,
    context,
    make,
    simulated,
)

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
