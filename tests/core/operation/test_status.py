"""The status counts within bounds, and compares goodput of the same steps."""

import math

import msgspec
import numpy as np
import pytest

from adaptive_spec.controller.plan_validation import engine_plan
from adaptive_spec.operation.status import Counters, PredictionCheck
from adaptive_spec.step import FinishedStep, Mode, SpecPlan, StepOutcome
from tests import steps
from tests.core.controller.answers import context, outcome


def test_drafts_are_counted_for_the_task_labels_used_last() -> None:
    counters = Counters()
    seen, finished = context(0), outcome(0)
    plan = engine_plan(seen)
    for label in range(1000):
        labels = msgspec.structs.replace(seen, task=np.array([label, 5, -1]))
        counters.count_finished(FinishedStep(labels, plan, finished))
    counted = counters.snapshot()["drafts_by_task"]
    assert len(counted) == 64
    assert counted["task 999"] == [3, 1]
    assert counted["task 5"] == [2000 + 3, 2000 + 1]


def test_drafts_are_counted_by_the_label_that_clients_sent() -> None:
    counters = Counters()
    for number, label in ((0, "code"), (1, "chat\x1b[31m"), (2, "code")):
        counters.name_task(number, label)
    labels = msgspec.structs.replace(context(0), task=np.array([0, 1, 2]))
    counters.count_finished(FinishedStep(labels, engine_plan(labels), outcome(0)))
    assert counters.snapshot()["drafts_by_task"] == {"code": [3, 1], "chat?[31m": [2, 2]}
    for number in range(1000):
        counters.name_task(number, "a" * 64)
    assert len(counters.task_names) == 128


def test_a_status_has_all_steps_however_many_have_come_since_the_last() -> None:
    counters, counted = Counters(), 0
    for more in (1, 0, 64, 130):
        for step in range(counted, counted + more):
            plan = engine_plan(context(step))
            counters.count_plan(context(step), plan)
            counters.count_outcome(outcome(step), plan)
        counted += more
        status = counters.snapshot()
        assert status["steps"] == status["steps_by_mode"]["engine"] == counted
        assert status["drafted_tokens"] == 6 * counted
        assert status["verified_tokens"] == 5 * counted
        assert status["requests_by_k"] == {"0": counted, "2": counted, "3": counted}


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


def outcome_of_prediction_check(step: int, seconds: float = 0.025) -> StepOutcome:
    return steps.outcome(steps.context(2, step=step), 2, [1, 2], context_tokens=40, seconds=seconds)


def test_both_goodputs_come_from_the_same_steps() -> None:
    check = PredictionCheck()
    for step in range(10):
        check.finished(plan(step), outcome_of_prediction_check(step))
    assert check.snapshot() == pytest.approx({"predicted": 300.0, "measured": 200.0})


@pytest.mark.parametrize(
    ("planned", "changes"),
    [
        (0.02, {"prefill_tokens": 5}),
        (0.02, {"seconds": math.nan}),
        (0.02, {"batch_size": 3}),  # a request ended in it; its tokens are not known
        *((unknown, {}) for unknown in (math.nan, 0.0, math.inf)),
    ],
)
def test_steps_that_cannot_be_compared_are_left_out(
    planned: float, changes: dict[str, float]
) -> None:
    check = PredictionCheck()
    ran = msgspec.structs.replace(outcome_of_prediction_check(0), **changes)
    check.finished(plan(0, seconds=planned), ran)
    assert check.snapshot() == {}


def test_what_is_long_past_counts_less() -> None:
    check = PredictionCheck()
    for step in range(3000):
        check.finished(plan(step), outcome_of_prediction_check(step, seconds=0.05))
    for step in range(3000, 8000):
        check.finished(plan(step), outcome_of_prediction_check(step, seconds=0.025))
    assert check.snapshot()["measured"] == pytest.approx(200.0, rel=0.05)
