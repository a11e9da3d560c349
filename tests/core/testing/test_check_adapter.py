"""check_adapter passes a sound record and finds out unsound ones."""

from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import Mode, SpecPlan, check_adapter
from adaptive_spec.controller.plan_validation import engine_plan
from adaptive_spec.step import StepContext, StepOutcome
from tests.core.controller.answers import context, outcome

Record = tuple[StepContext, SpecPlan, StepOutcome | None]


def record(**outcome_changes: Any) -> list[Record]:
    steps: list[Record] = []
    for step in range(3):
        before = context(step, draft_available=np.array([3, 2, 0]))
        plan = msgspec.structs.replace(engine_plan(before), mode=Mode.ON)
        after = outcome(step)
        if step == 1:
            after = msgspec.structs.replace(after, **outcome_changes)
        steps.append((before, plan, after))
    return steps


def test_a_sound_record_passes() -> None:
    check_adapter(record())
    check_adapter([(c, p, None) for c, p, _ in record()])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verified": np.array([4, 2, 0])}, "more drafts verified"),
        ({"accepted": np.array([4, 2, 0])}, "accepted"),
        ({"emitted": np.array([3, 3, 1])}, "emitted more"),
        ({"batch_tokens": 4}, "batch_tokens"),
        ({"seconds": 0.0}, "seconds"),
        ({"step": 7}, "outcome of step 7"),
        ({"slots": np.array([0, 1, 9])}, "was not planned"),
    ],
)
def test_an_outcome_that_cannot_be_is_found_out(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_adapter(record(**changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slots": np.array([0, 0, 1])}, "distinct"),
        ({"draft_available": np.array([9, 2, 0])}, "within 0..4"),
        ({"draft_available": np.array([4, 2, 0])}, "more drafts available"),
        ({"task": np.array([-1])}, "one entry per request"),
        ({"context_tokens": np.arange(6)[::2]}, "C-contiguous"),
        ({"step": 0}, "ascend"),
    ],
)
def test_a_context_that_cannot_be_is_found_out(changes: dict[str, Any], said: str) -> None:
    steps = record()
    before, plan, after = steps[1]
    steps[1] = (msgspec.structs.replace(before, **changes), plan, after)
    with pytest.raises(AssertionError, match=said):
        check_adapter(steps)


def test_requests_that_are_still_held_are_found_out() -> None:
    with pytest.raises(AssertionError, match="still held"):
        check_adapter(record(), live_requests=1)
    with pytest.raises(AssertionError, match="no step"):
        check_adapter([])
