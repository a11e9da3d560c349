"""Which K a load is timed with next, and when it is given up."""

from __future__ import annotations

import pytest

from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.sim.baselines.parts.start_up_profile import UntimedDepths, most_unsure
from tests.measured_steps import FULL, decoding, step


def truth(batch: int, k: float, depth: int) -> float:
    """A laptop: flat at first, then linear in tokens."""
    tokens = batch * (1 + k)
    return 0.055 + 0.0035 * max(tokens - 4, 0) + 0.002 * max(depth, 1)


COST = StepTimes(FULL)
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


def measured(model: StepTimes, batch: int) -> list[int]:
    """The K run at a load until the step time of each is known."""
    seen = []
    while (k := most_unsure(model, decoding(batch))) is not None:
        seen.append(k)
        assert len(seen) < 40, seen
        model.learn(step(batch, k, k, truth(batch, k, k)), cold=False)
    return seen


def test_a_load_is_measured_until_each_step_time_is_known() -> None:
    model = StepTimes(FULL)
    first, other = measured(model, 3), measured(model, 12)
    assert 0 in first
    assert max(first) >= 3
    assert len(other) < len(first)
    assert measured(model, 3) == []
    for batch in (3, 12):
        verify, draft = model.curves(batch, 100 * batch, scale=model.scale)
        known = verify[::batch] + draft
        for k in range(7):
            assert known[k] == pytest.approx(truth(batch, k, k), rel=0.15)


def test_a_k_that_is_not_worthwhile_is_never_measured() -> None:
    model = StepTimes(FULL)
    assert most_unsure(model, decoding(3), lambda k: k > 4) == 5
    model.learn(step(3, 2, 2, truth(3, 2, 2)), cold=False)
    assert most_unsure(model, decoding(3), lambda k: k > 4) in (5, 6)
    assert most_unsure(model, decoding(3), lambda k: False) is None


def test_after_a_change_of_step_times_every_k_is_offered_anew() -> None:
    model, untimed = StepTimes(FULL), UntimedDepths(1)
    for n in range(100):
        k = (0, 1, 3, 6)[n % 4]
        model.learn(step(4, k, k, truth(4, k, k)), cold=False)
    assert untimed.offer(model, decoding(4)) is None
    offered = []
    for _ in range(40):
        model.learn(step(4, 3, 3, 10.0 * truth(4, 3, 3)), cold=False)
        offered.append(untimed.offer(model, decoding(4)))
    assert any(k is not None for k in offered)
