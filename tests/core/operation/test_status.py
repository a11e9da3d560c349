"""What the status counts stays bounded, whatever clients send."""

import msgspec
import numpy as np

from adaptive_spec.controller.plan_validation import engine_plan
from adaptive_spec.operation.status import Counters
from adaptive_spec.step import FinishedStep
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
