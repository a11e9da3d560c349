"""The status counts within bounds, and compares goodput of the same steps."""

import logging
import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import Config, Controller
from adaptive_spec.config import Trace
from adaptive_spec.controller.plan_validation import engine_plan
from adaptive_spec.operation.metrics import families
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.operation.status import FIGURES, Counters, PredictionCheck
from adaptive_spec.step import FinishedStep, Mode, SpecPlan, StepContext, StepOutcome
from tests import steps
from tests.core.controller.answers import FULL, Answer, context, outcome
from tests.core.operation.test_plain import strange_parts


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


class Telling(Answer):
    """A policy that says of itself what a test gives it."""

    def __init__(self, said: Any) -> None:
        super().__init__(lambda seen: SpecPlan(**plan_fields(seen)))
        self.asked_for: Counter[str] = Counter()
        for name in FIGURES:
            setattr(self, name, lambda name=name: self._say(name, said))

    def _say(self, name: str, said: Any) -> Any:
        self.asked_for[name] += 1
        return said() if callable(said) else said


def plan_fields(seen: StepContext) -> dict[str, Any]:
    """A plan whose texts and numbers no encoder takes."""
    return {
        "step": seen.step,
        "verify": np.minimum(seen.draft_available, 1),
        "draft_depth": np.int64(1),
        "mode": Mode.ON,
        "reason": "half \ud83d",
        "predicted_tokens": np.float64(4.0),
        "predicted_seconds": np.float64(0.01),
    }


def ends() -> Any:
    raise SystemExit("figures")


HOSTILE: dict[str, Any] = {
    "numpy": {"k": np.float64(1.0), "switch": {"credit": np.float64(2.0)}},
    "a text": "figures",
    "other numbers": {"batch": "many", "off_seconds": None, "planned": "fast", 7: {1, 2}},
    "what raises": ends,
    "half characters": {"\ud800": "\udfff"},
    "nothing": None,
}


@pytest.mark.parametrize("said", HOSTILE)
def test_no_figure_of_a_policy_reaches_a_reader_as_another_type(
    said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(trace=Trace(directory=str(tmp_path)), status_file=str(tmp_path / "status"))
    telling = Controller(Telling(HOSTILE[said]), FULL, config)
    telling.slots.assign("a")
    with caplog.at_level(logging.WARNING):
        for step in range(40):
            assert telling.plan(context(step)).mode is Mode.ON
            telling.observe(outcome(step, now=0.01 * step))
            shown = [telling.status(), telling.break_even(), telling.history(), telling.why()]
            assert strange_parts(shown) == []
            msgspec.json.encode(shown)
    status = telling.status()
    assert status["last_reason"] == "half ?"
    assert not status["fail_opens"]
    list(families([(("m", "0"), status)]))
    telling.close()
    assert [each["reason"] for each in read_trace(tmp_path)] == ["half ?"] * 40
    assert len(caplog.records) <= len(FIGURES)


@pytest.mark.parametrize("new", ["a switch", "new weights"])
def test_a_new_policy_is_asked_at_once_whatever_the_old_one_failed_to_tell(new: str) -> None:
    telling = Controller(Telling(ends), FULL, Config(policy="static"))
    assert telling.status()["estimates"] == {}
    if new == "a switch":
        telling.switch(SwitchRequest(policy="goodput"))
    else:
        telling.start_over(new)
    telling.policy.estimates = lambda: {"engine_k": 2.0}
    assert telling.status()["estimates"] == {"engine_k": 2.0}


def test_where_drafts_pay_is_computed_for_the_first_of_many_readers() -> None:
    telling = Controller(Telling({"cells": []}), FULL)
    for _ in range(100):
        assert telling.break_even() == {"cells": []}
    assert telling.policy.asked_for["break_even"] == 1
    telling.switch(SwitchRequest(mode="shadow"))
    telling.break_even()
    assert telling.policy.asked_for["break_even"] == 2


@pytest.mark.parametrize(
    ("mode", "share", "shown"),
    [
        ("on", 0.0, {"engine_k": 8.0, "planned": 9.0, "no_speculation": 5.0}),
        ("shadow", 0.1, {"engine_k": 8.0, "planned": 9.0, "no_speculation": 5.0}),
        ("shadow", 0.0, {"engine_k": 8.0, "planned": 8.0}),
        ("off", 0.0, {"engine_k": 8.0, "planned": 8.0}),
    ],
)
def test_where_only_the_engines_own_k_runs_nothing_is_gained_over_it(
    mode: Any, share: float, shown: dict[str, float]
) -> None:
    said = {"engine_k": 8.0, "planned": 9.0, "no_speculation": 5.0}
    telling = Controller(Telling(said), FULL, Config(mode=mode, shadow_share=share))
    assert telling.status()["estimates"] == shown


def test_the_status_file_of_an_idle_engine_shows_a_switch(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    idle = Controller(Telling({}), FULL, Config(mode="on", status_file=str(file)))
    idle.switch(SwitchRequest(mode="shadow"))
    assert msgspec.json.decode(file.read_bytes())["mode"] == "shadow"


def test_an_ignored_hint_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            counters.ignored_hint("adaptive_spec_kcap")
    assert [record.getMessage().count("'adaptive_spec_kcap'") for record in caplog.records] == [1]
    assert counters.snapshot()["ignored_hints"] == {"adaptive_spec_kcap": 5}
