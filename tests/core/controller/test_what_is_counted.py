"""The controller counts and writes what happens, and neither can harm a step."""

import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adaptive_spec import Controller
from adaptive_spec.engines.request_table import RequestConstants, RequestTable
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from tests.core.controller.answers import FULL, PATIENT, context, controller, outcome, plan


def test_counters_say_what_happened() -> None:
    good = controller(plan)
    good.plan(context(0))
    good.observe(outcome(0))
    status = good.status()
    assert status["verified_tokens"] == 5
    assert status["accepted_tokens"] == 3
    assert status["emitted_tokens"] == 6
    assert status["requests_by_k"] == {"0": 1, "2": 1, "3": 1}
    assert status["steps_by_mode"] == {"on": 1}


def test_requests_that_cannot_be_read_are_counted() -> None:
    def fails(request: object) -> RequestConstants:
        raise AttributeError(request)

    good = controller(plan)
    assert good.status()["events"] == {}
    table = RequestTable(good.slots, fails)
    for name in ("a", "b"):
        table.slot_of(name, None)
    assert good.status()["events"] == {"unreadable_requests": 2}


def test_a_status_is_said_again_for_a_quarter_of_a_second_of_serving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    good = controller(plan)

    def steps(at: float) -> int:
        now[0] = at
        good.plan(context(0))
        return int(good.recent_status()["steps"])

    assert [steps(100.0), steps(100.1)] == [1, 2], "idle: always the present"
    good.slots.assign("alive")
    assert [steps(100.2), steps(100.34), steps(100.36)] == [2, 2, 5]
    good.switch(SwitchRequest(mode="shadow"))
    assert [steps(100.37), good.recent_status()["mode"]] == [6, "shadow"]


def test_an_outcome_that_cannot_be_counted_does_not_raise() -> None:
    good = controller(plan)
    good.plan(context(0))
    good.observe(msgspec.structs.replace(outcome(0), verified=np.array([-1, 0, 0])))
    assert sum(good.counters.failures.values()) == 1


def test_status_file_is_written_and_a_bad_disk_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "status-{pid}.json"
    good = controller(plan, status_file=str(path))
    good.plan(context(0))
    good.observe(outcome(0, now=5.0))
    [written] = tmp_path.glob("status-*.json")
    assert msgspec.json.decode(written.read_bytes())["steps"] == 1
    lost = controller(plan, status_file=str(written / "status.json"))
    lost.plan(context(0))
    lost.observe(outcome(0, now=5.0))
    assert lost.status()["steps"] == 1
    assert lost.status()["fail_opens"] == {}
    assert lost.status()["output_failures"] == {"status file": 1}


def test_reasons_are_counted_without_their_numbers_and_there_are_few() -> None:
    odd = controller(
        lambda c: plan(c, reason=f"table {c.step} at {c.step / 7:.2f}"), fail_open=PATIENT
    )
    for step in range(300):
        odd.plan(context(step))
    assert odd.status()["reasons_by_mode"] == {"on": {"table # at #": 300}}
    words = controller(
        lambda c: plan(c, reason="".join(chr(97 + int(d)) for d in str(c.step))), fail_open=PATIENT
    )
    for step in range(1000):
        words.plan(context(step))
    [reasons] = words.status()["reasons_by_mode"].values()
    assert sum(reasons.values()) == 1000
    assert len(reasons) <= 33
    assert reasons["other"] > 900


def test_decision_times_and_drafts_at_hand_are_counted() -> None:
    good = controller(plan, fail_open=PATIENT)
    for step in range(3):
        good.plan(context(step))
    status = good.status()
    assert status["drafted_tokens"] == 3 * 6
    assert sum(status["decisions_by_time"]) == 3
    assert status["decision_seconds"] > 0


def test_there_are_few_kinds_of_faults_whatever_their_texts() -> None:
    target = Controller(StaticPolicy(StaticOptions(k=1)), FULL)
    for number in range(100):
        target.fault(f"hook {number} raised: {number}")
    assert len(target.counters.failures) <= 33
