"""Which K a load is timed with next, and when it is given up."""

from __future__ import annotations

import numpy as np

from adaptive_spec import Capability, Level
from adaptive_spec.cost.model import CostModel
from adaptive_spec.cost.untimed_depths import UntimedDepths
from adaptive_spec.step import StepOutcome

COST = CostModel(Capability(level=Level.FULL, max_draft_tokens=3))
"""Nothing was ever run, so that every K stays untimed."""


def offers(untimed: UntimedDepths, batch_size: int) -> list[int]:
    """All that is offered until nothing is."""
    found: list[int] = []
    while (k := untimed.offer(COST, batch_size)) is not None:
        found.append(k)
    return found


def test_every_k_is_offered_so_many_times_at_each_load_and_then_given_up() -> None:
    untimed = UntimedDepths(2)
    expected = [k for k in COST.missing_depths(4) for _ in range(2)]
    assert offers(untimed, 4) == expected
    assert offers(untimed, 3) == []  # the same load, within a factor of two
    assert offers(untimed, 100) == expected


def test_a_k_that_is_not_worthwhile_is_passed_over_and_loses_no_attempt() -> None:
    untimed = UntimedDepths(1)
    first, second, *_ = COST.missing_depths(4)
    assert untimed.offer(COST, 4, lambda k: k != first) == second
    assert untimed.offer(COST, 4) == first


def test_no_drafts_are_timed_again_as_contexts_grow_and_attempts_count_anew() -> None:
    cost, untimed = CostModel(Capability(level=Level.FULL, max_draft_tokens=3)), UntimedDepths(2)

    def run(k: int, context: int) -> None:
        cost.learn(outcome_of(k, context))

    for k in (0, 1, 2, 3) * 3:
        run(k, 100)
    for context in (200, 400, 800):
        run(2, context)
        offered = [untimed.offer(cost, 4) for _ in range(3)]
        assert offered == [0, 0, None], "tried twice without being timed"
        for _ in range(3):
            run(0, context)
        assert untimed.offer(cost, 4) is None
        run(2, int(1.4 * context))
        assert untimed.offer(cost, 4) is None


def outcome_of(k: int, context: int) -> StepOutcome:
    """A step of four requests with contexts of this length."""
    full = np.full(4, k, dtype=np.int64)
    return StepOutcome(
        step=0,
        slots=np.arange(4),
        verified=full,
        accepted=full,
        emitted=full + 1,
        batch_size=4,
        batch_tokens=4 * (1 + k),
        context_tokens=4 * context,
        prefill_tokens=0,
        draft_depth=k,
        ragged=False,
        seconds=0.01 + 0.001 * k,
    )
