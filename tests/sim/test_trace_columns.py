"""A trace says what a policy knew, request by request, in the order of its ids."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_spec.config import Trace
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.operation.status import Counters
from adaptive_spec.operation.trace import StepTrace, step_record
from adaptive_spec.sim.logged_steps import LoggedTrace
from adaptive_spec.step import Capability, Level, Mode, SpecPlan, StepContext, StepOutcome
from tests import steps
from tests.sim.test_logged_steps import traced

CAPABILITY = Capability(level=Level.FULL, max_draft_tokens=4, token_buckets=(8, 16))


def context(**changes) -> StepContext:
    fields = dict(
        capability=CAPABILITY,
        step=7,
        request_ids=["a", "b", "c"],
        slots=[4, 0, 9],
        context_tokens=[40, 50, 60],
        draft_available=[1, 2, 3],
        draft_possible=[2, 3, 4],
    )
    return steps.context(**(fields | changes))


PLAN = SpecPlan(
    step=7,
    verify=np.array([1, 2, 0]),
    draft_depth=3,
    mode=Mode.ON,
    reason="drawn",
    propensity=np.array([0.5, 0.25, 0.125]),
)


def outcome(slots: list[int], verified: list[int]) -> StepOutcome:
    before = steps.context(step=7, slots=slots)
    tokens = 3 + sum(verified)
    return steps.outcome(
        before,
        verified,
        batch_size=3,
        batch_tokens=tokens,
        context_tokens=150,
        draft_depth=3,
        ragged=True,
    )


def record_of(planned: StepContext, became: StepOutcome) -> dict[str, Any]:
    return step_record(finished_step(planned, PLAN, became), PLAN)


def test_columns_belong_to_the_requests_that_are_still_alive() -> None:
    record = record_of(context(), outcome([4, 9], [1, 0]))
    assert record["ids"] == ["a", "c"]
    assert record["propensity"] == [0.5, 0.125]
    assert record["available"] == [1, 3]
    assert record["possible"] == [2, 4]
    assert record["contexts"] == [40, 60]
    assert "planned_k" not in record


def test_what_did_not_run_as_planned_is_told() -> None:
    record = record_of(context(), outcome([4, 0, 9], [1, 1, 0]))
    assert record["k"] == [1, 1, 0]
    assert record["planned_k"] == [1, 2, 0]


def test_signals_are_there_only_where_they_say_something() -> None:
    plain = record_of(context(), outcome([4, 0, 9], [1, 2, 0]))
    assert not {"temperature", "task", "tpot_target", "opted_out", "confidence"} & set(plain)
    confidence = np.full((3, 4), np.nan)
    confidence[:, 0] = 0.12345678
    rich = context(
        confidence=confidence,
        entropy=confidence,
        temperature=np.array([0.0, 0.7, 0.0]),
        task=np.array([-1, 2, -1]),
        tpot_target=np.array([np.inf, 0.05, np.inf]),
    )
    record = record_of(rich, outcome([4, 0, 9], [1, 2, 0]))
    assert record["temperature"] == [0.0, 0.7, 0.0]
    assert record["task"] == [-1, 2, -1]
    assert record["confidence"][0][0] == 0.1235


def test_what_is_unknown_is_null_and_each_segment_names_the_limits(tmp_path: Path) -> None:
    trace = StepTrace(
        Trace(directory=str(tmp_path), segment_mb=0.002), Counters(), logging.getLogger("test")
    )
    for _ in range(12):
        confidence = np.array([[0.5, np.nan, np.nan, np.nan]] * 3)
        planned = context(
            confidence=confidence,
            tpot_target=np.array([np.inf, 0.05, np.inf]),
            opted_out=np.array([True, False, False]),
        )
        trace.write(finished_step(planned, PLAN, outcome([4, 0, 9], [1, 2, 0])), PLAN)
    trace.close(0.0)
    segments = sorted(tmp_path.iterdir())
    assert len(segments) > 1
    for segment in segments:
        first, *others = segment.read_text().splitlines()
        assert json.loads(first)["capability"]["token_buckets"] == [8, 16]
        assert all("capability" not in json.loads(line) for line in others)
    for record in read_trace(tmp_path):
        assert record["confidence"][0] == [0.5, None, None, None]
        assert record["tpot_target"] == [None, 0.05, None]
    for logged in LoggedTrace(tmp_path).steps():
        opted_out = logged.context.opted_out
        assert opted_out.tolist() == [True, False, False]


def test_steps_keep_the_server_s_numbers_and_ascend_over_a_restart(tmp_path: Path) -> None:
    folder = traced(tmp_path, steps=5)
    numbers = [logged.context.step for logged in LoggedTrace(folder).steps()]
    assert numbers == [logged.record.step for logged in LoggedTrace(folder).steps()]
    [segment] = folder.iterdir()
    segment.with_name("steps-9999999999-000000.jsonl").write_text(segment.read_text())
    both = [logged.context.step for logged in LoggedTrace(folder).steps()]
    assert both == numbers + [both[len(numbers)] + number - numbers[0] for number in numbers]
    assert both[len(numbers)] > numbers[-1]
