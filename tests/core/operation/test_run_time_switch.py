"""Mode, policy and options change while a server runs: all of a request or nothing of it."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptive_spec import Capability, Config, Controller, Level, Mode, available_policies
from adaptive_spec.config import FailOpen
from adaptive_spec.errors import ConfigError, PolicyError
from adaptive_spec.operation.run_time_switch import ControlFile, parse_switch
from adaptive_spec.policies.static import StaticPolicy
from adaptive_spec.step import StepContext, StepOutcome
from tests import steps
from tests.refused import refused

KMAX = 4
PROFILE = (
    '{"name": "p", "source": "a test", "tokens": [1, 64], "seconds": [0.01, 0.02],'
    ' "draft_pass": 0.001}'
)
FULL = Capability(level=Level.FULL, max_draft_tokens=KMAX)


def controller(*, only_watch: str = "", **options: Any) -> Controller:
    defaults = {
        "policy": "static",
        "options": {"k": 2},
        "fail_open": FailOpen(max_decision_ms=60_000),  # a slow machine is no fault here
    }
    config = Config(**(defaults | options))
    return Controller.from_config(config, FULL, only_watch=only_watch)


def switch(target: Controller, **request: Any) -> None:
    target.switch(parse_switch(request, source="test"))


def context(step: int, slots: Any = (0, 1, 2)) -> StepContext:
    return steps.context(
        capability=FULL, step=step, slots=slots, context_tokens=50, now=0.01 * step
    )


def ran(context: StepContext, verify: Any, depth: int) -> StepOutcome:
    return steps.outcome(context, verify, verify // 2, draft_depth=depth, ragged=False)


def test_the_next_plan_is_the_new_policys() -> None:
    target = controller()
    assert target.plan(context(0)).verify.tolist() == [2, 2, 2]
    switch(target, options={"k": 3})
    assert target.plan(context(1)).verify.tolist() == [3, 3, 3]
    switch(target, policy="off")
    assert target.plan(context(2)).verify.tolist() == [0, 0, 0]
    switch(target, mode="shadow")
    assert target.plan(context(3)).mode is Mode.SHADOW
    switch(target, mode="off")
    assert target.plan(context(4)).mode is Mode.ENGINE
    status = json.loads(msgspec.json.encode(target.status()))
    assert (status["mode"], status["policy"], status["switches"]) == ("off", "off", 4)


@pytest.mark.parametrize("first", ["static", "adaptive_spec.policies.static:StaticPolicy"])
def test_going_back_to_the_first_policy_brings_its_options_back(first: str) -> None:
    target = controller(policy=first)
    switch(target, policy="off")
    switch(target, policy=first)
    assert isinstance(target.policy, StaticPolicy)
    assert target.plan(context(0)).verify.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("request_", "error", "named"),
    [
        ({"policy": "no_such"}, ConfigError, "no_such"),
        ({"policy": "adaptive_spec.policies.static:StaticPolicy"}, ConfigError, "static:Static"),
        ({"policy": "goodput", "options": {"profile": "/dev/zero"}}, ConfigError, "/dev/zero"),
        ({"policy": "regression", "options": {"model": "/etc/passwd"}}, ConfigError, "was started"),
        ({"policy": "static", "options": {"k": -2}, "mode": "off"}, PolicyError, "$.k"),
        ({"options": {"unknown": 2}, "mode": "off"}, PolicyError, "unknown"),
    ],
)
def test_a_request_that_cannot_be_obeyed_changes_nothing(
    request_: Any, error: type[Exception], named: str
) -> None:
    target = controller()
    with refused(error, named):
        switch(target, **request_)
    assert target.mode == "on"
    assert target.plan(context(0)).verify.tolist() == [2, 2, 2]
    assert target.status()["switches"] == 0


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"mode": "faster"}, "choose one of off, on, shadow"),
        ({"options": {"latency_strength": float("inf")}}, "not a finite number"),
        ({"options": {"x": float("nan")}}, "not a finite number"),
        ({"options": {"x": 1 << 80}}, "64 bits"),
        ({"modus": "on"}, "modus"),
        ({}, "nothing to change"),
        ({"mode": None}, "nothing to change"),
        ([], "expected an object"),
        ("on", "expected an object"),
        ({"options": [1]}, "$.options"),
    ],
)
def test_bad_requests_are_one_line_with_the_keys_there_are(value: Any, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_switch(value, source="request")
    message = str(caught.value)
    assert message.startswith("request: ")
    assert named in message
    assert "mode, policy, options" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", sorted(available_policies()))
def test_every_policy_can_be_chosen_on_a_server_with_a_profile(name: str, tmp_path: Path) -> None:
    profile = tmp_path / "p.json"
    profile.write_text(PROFILE)
    target = controller(policy="goodput", options={}, profile=str(profile))
    switch(target, policy=name)
    status = target.status()
    assert status["policy"] == name
    if name in ("off", "static", "goodput"):
        assert status["profile_ignored"] is (name != "goodput")


def test_the_profile_of_the_start_may_be_named_again(tmp_path: Path) -> None:
    profile = tmp_path / "p.json"
    profile.write_text(PROFILE)
    target = controller(profile=str(profile))
    switch(target, policy="goodput", options={"profile": str(profile)})
    assert not target.status()["profile_ignored"]


def test_set_ups_that_only_watch_refuse_mode_on() -> None:
    target = controller(only_watch="pipeline parallelism", mode="shadow")
    switch(target, policy="off")
    with pytest.raises(ConfigError, match="pipeline parallelism"):
        switch(target, mode="on")
    assert target.mode == "shadow"


def test_a_benched_policy_gives_way_to_the_new_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target = controller()

    def broken(context: StepContext) -> Any:
        raise RuntimeError("planned failure")

    monkeypatch.setattr(target.policy, "plan", broken)
    for step in range(10):
        target.plan(context(step))
    assert target.status()["benched"]
    switch(target, policy="static", options={"k": 1})
    assert not target.status()["benched"]
    assert target.plan(context(11)).verify.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", sorted(available_policies()))
def test_every_installed_policy_can_take_over_requests_it_has_never_seen(name: str) -> None:
    """Slots of requests from before the switch, outcomes of the old policy's steps, and ends."""
    target = controller()
    for slot in range(40):
        target.slots.assign(str(slot))
    slots = (3, 17, 39)
    first = context(0, slots)
    plan = target.plan(first)
    switch(target, policy=name)
    target.observe(ran(first, plan.verify, plan.draft_depth))
    for step in range(1, 6):
        now = context(step, slots)
        plan = target.plan(now)
        target.observe(ran(now, plan.verify, plan.draft_depth))
    target.finish(["3", "5", "39"])
    assert target.counters.failures == {}


class TestControlFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "control.json"

    def write(self, path: Path, text: str, stamp: int) -> None:
        path.write_text(text)
        os.utime(path, ns=(stamp, stamp))

    def test_it_is_read_when_it_has_changed_and_not_too_often(self, path: Path) -> None:
        file = ControlFile(path)
        assert file.poll(0.0) is None
        self.write(path, '{"mode": "shadow"}', 1)
        assert file.poll(0.5) is None, "looked at again too soon"
        request = file.poll(1.5)
        assert request.mode == "shadow"
        assert file.poll(3.0) is None, "it has not changed"
        self.write(path, '{"mode": "off"}', 2)
        found = file.poll(5.0)
        assert found.mode == "off"

    def test_a_clock_that_jumps_back_does_not_stop_it(self, path: Path) -> None:
        file = ControlFile(path)
        assert file.poll(1e6) is None
        self.write(path, '{"mode": "off"}', 1)
        assert file.poll(5.0) is not None

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", '{"mode": "x"}', '{"pol": 1}', "\x00", "9" * 100_000]
    )
    def test_what_cannot_be_used_is_said_once_and_changes_nothing(
        self, path: Path, text: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        target = controller(control_file=str(path))
        self.write(path, text, 1)
        with caplog.at_level(logging.WARNING):
            for now in (0.0, 2.0, 4.0):
                target.poll_control_file(now)
        assert len(caplog.records) == 1
        assert str(path) in caplog.text
        assert str(path) in target.status()["control_file_error"]
        assert target.plan(context(0)).verify.tolist() == [2, 2, 2]
        assert target.counters.failures == {}
        self.write(path, json.dumps({"policy": "off"}), 2)
        target.poll_control_file(10.0)
        assert target.plan(context(1)).verify.tolist() == [0, 0, 0]
        assert target.status()["control_file_error"] == ""

    @pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
    def test_what_is_no_file_is_not_read_and_no_fault(self, tmp_path: Path, kind: str) -> None:
        path = {"folder": tmp_path, "pipe": tmp_path / "pipe", "device": Path("/dev/zero")}[kind]
        if kind == "pipe":
            os.mkfifo(path)
        target = controller(control_file=str(path))
        target.poll_control_file(0.0)
        assert target.counters.failures == {}
        assert str(path) in target.status()["control_file_error"]


def test_new_weights_drop_what_was_learned() -> None:
    target = controller(policy="goodput", options={})
    before = target.policy
    target.start_over("weights are now 'b'")
    assert target.policy is not before
    assert target.policy.name == "goodput"
    assert target.counters.failures == {}
