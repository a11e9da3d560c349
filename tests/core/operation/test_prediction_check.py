"""Predicted and measured goodput are compared over the same steps."""

import math

import msgspec
import numpy as np
import pytest

from adaptive_spec.operation.status import PredictionCheck
from adaptive_spec.step import Mode, SpecPlan, StepOutcome
from tests import steps


def plan(step: int, tokens: float = 6.0, seconds: float = 0.02) -> SpecPlan:
    return SpecPlan(
        step=step,
        verify=np.array([2, 2]),
        draft_depth=2,
        mode=Mode.ON,
        reason="test",
        predicted_tokens=tokens,
        predicted_seconds=seconds,
    )


def outcome(step: int, seconds: float = 0.025) -> StepOutcome:
    return steps.outcome(steps.context(2, step=step), 2, [1, 2], context_tokens=40, seconds=seconds)


def test_both_goodputs_come_from_the_same_steps() -> None:
    check = PredictionCheck()
    for step in range(10):
        check.finished(plan(step), outcome(step))
    assert check.snapshot() == pytest.approx({"predicted": 300.0, "measured": 200.0})


@pytest.mark.parametrize(
    "changes",
    [
        {"prefill_tokens": 5},
        {"seconds": math.nan},
        {"batch_size": 3},  # a request ended in it; its tokens are not known
    ],
)
def test_steps_that_cannot_be_compared_are_left_out(changes: dict[str, float]) -> None:
    check = PredictionCheck()
    check.finished(plan(0), msgspec.structs.replace(outcome(0), **changes))
    assert check.snapshot() == {}


@pytest.mark.parametrize("unknown", [math.nan, 0.0, math.inf])
def test_plans_without_a_prediction_are_left_out(unknown: float) -> None:
    check = PredictionCheck()
    check.finished(plan(0, seconds=unknown), outcome(0))
    assert check.snapshot() == {}


def test_what_is_long_past_counts_less() -> None:
    check = PredictionCheck()
    for step in range(3000):
        check.finished(plan(step), outcome(step, seconds=0.05))
    for step in range(3000, 8000):
        check.finished(plan(step), outcome(step, seconds=0.025))
    assert check.snapshot()["measured"] == pytest.approx(200.0, rel=0.05)
