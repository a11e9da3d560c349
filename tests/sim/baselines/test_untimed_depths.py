"""Which K a load is timed with next, and when it is given up."""

from __future__ import annotations

from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.sim.baselines.parts.start_up_profile import UntimedDepths
from tests.policies.step_time.measured_steps import FULL, decoding

COST = CostModel(FULL)
"""Nothing was ever run, so that every K stays unknown."""


def offers(untimed: UntimedDepths, batch_size: int) -> list[int]:
    """All that is offered until nothing is."""
    found: list[int] = []
    while (k := untimed.offer(COST, decoding(batch_size))) is not None:
        found.append(k)
    return found


def test_every_k_is_offered_so_many_times_at_each_load_and_then_given_up() -> None:
    untimed = UntimedDepths(2)
    expected = [k for k in range(7) for _ in range(2)]
    assert offers(untimed, 4) == expected
    assert offers(untimed, 3) == []  # the same load, within a factor of two
    assert offers(untimed, 100) == expected


def test_a_k_that_is_not_worthwhile_is_passed_over_and_loses_no_attempt() -> None:
    untimed = UntimedDepths(1)
    assert untimed.offer(COST, decoding(4), lambda k: k > 0) == 1
    assert untimed.offer(COST, decoding(4)) == 0
