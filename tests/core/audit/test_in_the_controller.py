"""Audit blocks in a controller: the engine's own K runs there, and the policy learns on."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Config, Controller, Mode
from adaptive_spec.audit.blocks import BLOCK_STEPS
from adaptive_spec.config import Audit, Trace
from adaptive_spec.errors import ConfigError
from adaptive_spec.operation.run_time_switch import parse_switch
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from tests import steps
from tests.core.controller.answers import PATIENT

pytestmark = pytest.mark.slow

KMAX = 4
OWN, PLANNED = 3, 1
FRAME = 4 * BLOCK_STEPS
"""Steps of a frame at the largest share, a quarter."""


class Learner(StaticPolicy):
    """Runs one K, and counts what it is told."""

    def __init__(self) -> None:
        super().__init__(StaticOptions(k=PLANNED))
        self.told = 0

    def observe(self, step: Any) -> None:
        assert step.plan.verify.tolist() == [PLANNED] * 2
        self.told += 1


def audited(**config: Any) -> Controller:
    config.setdefault("audit", Audit(share=0.25, guard=True))
    return Controller(Learner(), steps.full(KMAX), Config(fail_open=PATIENT, **config))


def drive(controller: Controller, number: int, first: int = 0, speed: float = 1.0) -> list[int]:
    """Run steps; return K of each. The engine's own K takes 10 ms, the policy's 10 ms / speed."""
    ran = []
    for step in range(first, first + number):
        context = steps.context(2, KMAX, step=step, engine_k=OWN, now=0.01 * step)
        plan = controller.plan(context)
        k = int(plan.verify[0])
        seconds = 0.01 if k == OWN else 0.01 / speed
        controller.observe(
            steps.outcome(context, plan.verify, 0, seconds=seconds, now=0.01 * (step + 1))
        )
        ran.append(k)
    return ran


def test_the_engines_own_k_runs_in_the_blocks_and_the_policy_learns_of_all_steps() -> None:
    controller = audited()
    ran = drive(controller, 20 * FRAME)
    assert ran.count(OWN) == 20 * BLOCK_STEPS
    assert ran.count(PLANNED) == 60 * BLOCK_STEPS
    assert isinstance(controller.policy, Learner)
    assert controller.policy.told == 20 * FRAME
    by_mode = {Mode.ON: 60 * BLOCK_STEPS, Mode.SHADOW: 20 * BLOCK_STEPS}
    assert controller.status()["steps_by_mode"] == by_mode


def test_no_drafts_run_in_blocks_of_the_other_arm() -> None:
    controller = audited(audit=Audit(share=0.25, arms=("none",)))
    assert set(drive(controller, 4 * FRAME)) == {0, PLANNED}
    assert controller.status()["steps_by_mode"].keys() == {Mode.ON, Mode.OFF_WARM}


@pytest.mark.parametrize("speed", [1.25, 0.8])
def test_the_status_says_how_much_faster_the_plugin_is(speed: float) -> None:
    controller = audited(audit=Audit(share=0.25, guard=False))
    drive(controller, 50 * FRAME, speed=speed)
    found = controller.status()["audit"]["arms"]["engine"]
    assert found["low"] < speed - 1.0 < found["high"]
    assert found["gain"] == pytest.approx(speed - 1.0, abs=0.01)
    assert found["by_load"].keys() == {"2"}
    assert found["hour"]["blocks"] == found["blocks"] == pytest.approx(50, abs=3)


def test_a_slower_policy_is_handed_back_and_comes_back_when_it_is_none_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = audited()
    with caplog.at_level(logging.WARNING):
        drive(controller, 15 * FRAME, speed=0.7)
        assert controller.status()["audit"]["handed_back"] == ["all", "2"]
        lost = drive(controller, 5 * FRAME, first=15 * FRAME, speed=0.7)
        assert lost.count(PLANNED) == 5 * BLOCK_STEPS
        drive(controller, 125 * FRAME, first=20 * FRAME, speed=1.1)
    assert controller.status()["audit"]["handed_back"] == []
    assert drive(controller, 10 * FRAME, first=145 * FRAME).count(PLANNED) == 30 * BLOCK_STEPS
    assert controller.status()["events"] == {"audit_handed_back": 2, "audit_came_back": 2}
    said = [record.getMessage() for record in caplog.records]
    assert any("measurably slower than the engine's own K, at 2 requests" in each for each in said)


def test_without_the_guard_nothing_is_handed_back() -> None:
    controller = audited(audit=Audit(share=0.25, guard=False))
    assert drive(controller, 50 * FRAME, speed=0.7).count(PLANNED) == 150 * BLOCK_STEPS


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_where_the_plugin_does_not_decide_nothing_is_audited(mode: Any) -> None:
    controller = audited(mode=mode)
    assert set(drive(controller, 480)) == {OWN}
    assert controller.status()["audit"]["arms"] == {}


def test_a_fault_of_the_audit_switches_it_off_and_no_plan_is_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("planted")

    controller = audited()
    monkeypatch.setattr(controller._auditor, "observe", fails)
    with caplog.at_level(logging.WARNING):
        assert set(drive(controller, 4 * FRAME)) == {PLANNED}
    status = controller.status()
    assert status["audit"] == {"fault": "ZeroDivisionError: planted"}
    assert status["fail_opens"] == {"audit raised ZeroDivisionError": 1}
    assert status["benched"] is False
    assert len([each for each in caplog.records if "audit raised" in each.getMessage()]) == 1
    controller.switch(parse_switch({"policy": "static", "options": {"k": 1}}, source="test"))
    assert OWN in drive(controller, 4 * FRAME, first=4 * FRAME)


def test_the_trace_names_block_window_and_arm(tmp_path: Path) -> None:
    controller = audited(trace=Trace(directory=str(tmp_path)))
    drive(controller, 5 * FRAME)
    controller.close()
    rows = list(read_trace(tmp_path))
    assert all((row["k"][0] == OWN) == (row.get("audit", "---")[2] == "engine") for row in rows)
    placed = [row["audit"] for row in rows if "audit" in row]
    assert {window for _, window, _, _ in placed} == {"before", "block", "after"}
    assert {edge for *_, edge in placed} == {True, False}
    assert len({block for block, *_ in placed}) >= 5


def test_the_share_is_switched_while_the_server_runs() -> None:
    controller = audited(audit=Audit(share=0.0))
    assert set(drive(controller, 2 * FRAME)) == {PLANNED}
    controller.switch(parse_switch({"audit": {"share": 0.25}}, source="test"))
    assert drive(controller, 2 * FRAME, first=2 * FRAME).count(OWN) == 2 * BLOCK_STEPS
    for wrong in ({"share": 0.5}, {"arms": ["k3"]}, {"minutes": 0}, {"sahre": 0.1}):
        with pytest.raises(ConfigError, match="audit"):
            parse_switch({"audit": wrong}, source="test")


def test_a_share_that_is_raised_for_minutes_falls_back_by_itself() -> None:
    controller = audited(audit=Audit(share=0.0))
    minutes = 6 * FRAME * 0.01 / 60  # steps of 10 ms
    request = {"audit": {"share": 0.25, "arms": ["none"], "minutes": minutes}}
    controller.switch(parse_switch(request, source="test"))
    assert controller.status()["audit"]["proof_seconds_left"] == pytest.approx(60.0 * minutes)
    # The first step, on a clock that has long been on.
    ran = drive(controller, 10 * FRAME, first=500_000)
    assert ran[: 6 * FRAME].count(0) == 6 * BLOCK_STEPS
    assert ran[6 * FRAME + 1 :].count(0) == 0
    status = controller.status()["audit"]
    assert status["proof"]["none"]["blocks"] == 6
    assert (status["share"], status["proof_seconds_left"]) == (0.0, 0.0)


def test_blocks_are_placed_by_the_seed_and_not_by_what_comes_of_them() -> None:
    def blocks(seed: int, speed: float) -> np.ndarray:
        controller = audited(seed=seed, audit=Audit(share=0.1, guard=False))
        return np.array(drive(controller, 12 * FRAME, speed=speed)) == OWN

    assert (blocks(0, 1.0) == blocks(0, 3.0)).all()
    assert (blocks(0, 1.0) != blocks(1, 1.0)).any()
