"""Steps under way are matched to results that arrive in order, with gaps."""

from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.engines.driver import PendingSteps


def pending_of(*steps: int) -> PendingSteps[int]:
    return PendingSteps(steps)


@given(st.lists(st.booleans(), max_size=40))
def test_results_find_their_step_although_some_steps_never_have_any(
    has_results: list[bool],
) -> None:
    pending = pending_of(*range(len(has_results)))
    for number, has_any in enumerate(has_results):
        if has_any:
            assert pending.pop_matching(lambda step, number=number: step == number) == number
            assert len(pending) == len(has_results) - number - 1


def test_results_of_no_known_step_change_nothing() -> None:
    pending = pending_of(1, 2, 3)
    assert pending.pop_matching(lambda step: step == 9) is None
    assert list(pending) == [1, 2, 3]


def test_of_several_matching_steps_the_oldest_is_taken() -> None:
    pending = pending_of(1, 2, 3)
    assert pending.pop_matching(lambda step: step >= 2) == 2
    assert list(pending) == [3]


def test_only_the_youngest_steps_are_kept() -> None:
    pending = pending_of(1, 2, 3)
    pending.keep(2)
    assert list(pending) == [2, 3]
    pending.keep(0)
    assert not pending
