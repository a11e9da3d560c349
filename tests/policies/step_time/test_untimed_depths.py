"""Which K a load is timed with next, and when it is given up."""

from __future__ import annotations

from adaptive_spec import Capability, Level
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policies.step_time.untimed_depths import UntimedDepths

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
