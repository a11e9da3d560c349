"""TETRIS: a fixed number of drafts, the likeliest."""

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.sim.baselines.parts.drafts import most_likely, survival_of
from adaptive_spec.step import StepContext

from .baseline_support import context, make, simulated

TETRIS = "tetris"


UNIFORM = Capability(level=Level.UNIFORM, max_draft_tokens=5)
UNLIKE = [[0.9] * 5, [0.1] * 5]


@pytest.mark.parametrize(
    ("options", "seen", "planned"),
    [
        # Capacity 2 * (5 - 2) = 6: .9^5 = .59 goes before .5, and .25 after it.
        ({"extra_drafts": 2}, context(2, confidence=[[0.9] * 5, [0.5] * 5]), ([5, 1], 5)),
        # Drafts that are not at hand take no capacity.
        (
            {"extra_drafts": 3},
            context(2, confidence=UNLIKE, draft_available=np.array([1, 5])),
            ([1, 3], 5),
        ),
        # A small batch runs the base K, and so do steps without confidence or with one K for all.
        ({"extra_drafts": 2, "turn_on_batch_size": 3}, context(2, confidence=UNLIKE), ([3, 3], 3)),
        (
            {"extra_drafts": 2, "turn_on_batch_size": 3},
            context(3, confidence=[*UNLIKE, [0.1] * 5]),
            ([5, 2, 2], 5),
        ),
        ({"extra_drafts": 2}, context(2), ([3, 3], 3)),
        ({"extra_drafts": 2}, context(2, capability=UNIFORM, confidence=UNLIKE), ([3, 3], 3)),
    ],
)
def test_the_likeliest_of_the_batch_share_the_capacity(
    options: dict[str, int], seen: StepContext, planned: tuple[list[int], int]
) -> None:
    plan = make(TETRIS, **options).plan(seen)
    assert (plan.verify.tolist(), plan.draft_depth) == planned


def test_the_capacity_is_filled_whatever_the_confidence() -> None:
    random = np.random.default_rng(1)
    for extra in (0, 1, 4, 9):
        shown = random.random((7, 5)) * 0.1
        plan = make(TETRIS, extra_drafts=extra).plan(context(7, confidence=shown))
        assert int(plan.verify.sum()) == 7 * max(5 - extra, 1)


def test_equal_survivals_go_to_shallow_positions_then_early_requests() -> None:
    survival = np.ones((3, 4))
    full = np.full(3, 4)
    ranked = [most_likely(survival, full, budget).tolist() for budget in (0, 1, 2, 3, 4, 8, 99)]
    assert ranked == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1], [3, 3, 2], [4, 4, 4]]


def test_a_drafts_place_does_not_depend_on_deeper_ones_of_its_request() -> None:
    random = np.random.default_rng(8)
    for _ in range(300):
        acceptance = np.round(random.random((3, 4)), 1)
        other = acceptance.copy()
        row, changed = int(random.integers(3)), int(random.integers(1, 4))
        other[row, changed:] = np.round(random.random(4 - changed), 1)
        budget, available = int(random.integers(13)), random.integers(0, 5, 3)
        one, two = (
            most_likely(survival_of(world), available, min(budget, int(available.sum())))[row]
            for world in (acceptance, other)
        )
        assert min(one, changed) == min(two, changed)


@pytest.mark.parametrize("level", [Level.VERIFY, Level.FULL])
def test_it_accepts_more_than_the_same_number_spread_evenly(level: Level) -> None:
    ranked = simulated(TETRIS, level=level, extra_drafts=3, tokens=8000)
    even = simulated("static", level=level, k=2, tokens=8000)
    assert ranked.mean_k == pytest.approx(even.mean_k, rel=0.02)
    assert ranked.accepted_per_step > 1.1 * even.accepted_per_step
