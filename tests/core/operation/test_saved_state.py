"""What a policy has learned is there again after a restart of the same server, and only there."""

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptive_spec import Capability, Config, Controller, Level
from adaptive_spec.config import FailOpen, Trace
from adaptive_spec.operation.run_time_switch import parse_switch
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.step import FinishedStep
from tests import steps as made

FULL = Capability(level=Level.FULL, max_draft_tokens=4)
SERVER = {"model": "a", "device": "x"}


def controller(
    directory: Path, identity: dict[str, str] | None = SERVER, **changes: Any
) -> Controller:
    config = Config(
        state_directory=str(directory),
        fail_open=FailOpen(max_decision_ms=60_000),  # a slow machine is no fault here
    )
    return Controller.from_config(
        msgspec.structs.replace(config, **changes), FULL, identity=identity
    )


def run(target: Controller, steps: int, accepted: int, seconds: float = 0.01) -> None:
    """Steps of three requests that verify all four drafts."""
    for step in range(1, steps + 1):
        now = step * seconds
        context = made.context(3, FULL, step=step, context_tokens=50, now=now)
        target.plan(context)
        target.observe(made.outcome(context, 4, accepted, seconds=seconds))


def saved(directory: Path, accepted: int = 0) -> tuple[Controller, Path]:
    """A server that has ended after 50 steps, and the file that it left."""
    first = controller(directory)
    run(first, 50, accepted)
    first.close()
    (path,) = directory.iterdir()
    return first, path


def cost_profile(slower: float) -> bytes:
    return msgspec.json.encode(
        CostProfile(
            name="measured",
            source="a test",
            tokens=[1, 64],
            seconds=[0.01 * slower, 0.02 * slower],
            draft_pass=0.001,
        )
    )


def learned(target: Controller) -> Any:
    return json.loads(json.dumps(target.policy.state()))


def test_the_status_says_how_well_acceptance_is_predicted(tmp_path: Path) -> None:
    target = controller(tmp_path)
    assert target.status()["hazards"] == {}
    run(target, 50, accepted=2)
    assert target.status()["hazards"]["history"]["ece"] < 0.2


def test_a_restart_of_the_same_server_goes_on_from_what_was_learned(tmp_path: Path) -> None:
    first, _ = saved(tmp_path)
    second = controller(tmp_path)
    assert learned(second) == learned(first)
    assert learned(controller(tmp_path / "elsewhere")) != learned(first)
    run(second, 1, accepted=0)
    assert second.counters.failures == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": {**SERVER, "model": "b"}},
        {"identity": {**SERVER, "another": "value"}},
        {"options": {"prior_hazard": 0.5}},
    ],
)
def test_a_server_that_differs_starts_anew_and_overwrites_nothing(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    _, path = saved(tmp_path)
    kept = path.read_bytes()
    other = controller(tmp_path, **changes)
    assert not other.policy.state()
    run(other, 50, accepted=4)
    other.close()
    assert path.read_bytes() == kept


def test_a_cost_profile_measured_anew_is_not_overruled_by_what_was_learned(tmp_path: Path) -> None:
    profile = tmp_path / "measured.json"
    states = tmp_path / "states"
    measured = cost_profile(slower=1.0)
    profile.write_bytes(measured)
    first = controller(states, profile=str(profile))
    run(first, 50, accepted=0)
    profile.write_bytes(cost_profile(slower=3.0))
    first.close()
    assert not controller(states, profile=str(profile)).policy.state()
    profile.write_bytes(measured)
    assert learned(controller(states, profile=str(profile))) == learned(first)


def test_it_is_saved_every_ten_seconds_while_the_server_runs(tmp_path: Path) -> None:
    first = controller(tmp_path)
    run(first, 10, accepted=0, seconds=1.0)
    assert not list(tmp_path.iterdir())
    run(first, 13, accepted=0, seconds=1.0)
    (path,) = tmp_path.iterdir()
    content = json.loads(path.read_bytes())
    assert content["identity"] == {**SERVER, "profile": ""}
    assert (content["policy"], content["schema"]) == ("goodput", 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b'{"schema": 1}',
        b"[]",
        b'{"schema":2,"identity":{"device":"x","model":"a"},"policy":"goodput","options":{},"state":{}}',
        b'{"schema":1,"identity":{"device":"y","model":"a"},"policy":"goodput","options":{},"state":{}}',
        b'{"schema":1,"identity":{"device":"x","model":"a"},"policy":"goodput","options":{},"state":{"schema":7}}',
    ],
)
def test_a_damaged_file_is_set_aside_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    _, path = saved(tmp_path)
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        second = controller(tmp_path)
    assert len(caplog.records) == 1
    assert str(path) in caplog.text
    assert path.with_name(path.name + ".unused").read_bytes() == content
    run(second, 50, accepted=4)
    second.close()
    assert learned(controller(tmp_path)) == learned(second)


def test_a_file_that_benched_the_policy_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = saved(tmp_path, accepted=2)
    second = controller(tmp_path)

    def broken(step: FinishedStep) -> None:
        raise OverflowError("a number of the file")

    monkeypatch.setattr(second.policy, "observe", broken)
    run(second, 30, accepted=2)
    assert second.status()["benched"]
    assert not path.exists()
    assert path.with_name(path.name + ".unused").exists()


def test_a_state_that_does_not_fit_does_not_stop_the_server(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    content = json.loads(path.read_bytes())
    content["state"]["acceptance"]["position_effect"] = [0.0] * 9
    path.write_bytes(json.dumps(content).encode())
    second = controller(tmp_path)
    run(second, 50, accepted=4)
    assert sum(second.counters.failures.values()) <= 1  # said once: it is of another Kmax
    assert learned(second)


def test_a_state_with_damaged_hazards_is_set_aside_whole(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    content = json.loads(path.read_bytes())
    content["state"]["acceptance"]["confidence"] = {"own": "none"}
    path.write_bytes(json.dumps(content).encode())
    second, fresh = controller(tmp_path), controller(tmp_path / "new")
    assert path.with_name(path.name + ".unused").exists()
    for target in (second, fresh):
        run(target, 50, accepted=4)
    assert second.counters.failures == {}
    assert learned(second) == learned(fresh)


def test_a_switch_and_back_again_loses_nothing(tmp_path: Path) -> None:
    target = controller(tmp_path)
    run(target, 100, accepted=0)
    before = learned(target)
    target.switch(parse_switch({"policy": "static", "options": {"k": 1}}, source="test"))
    run(target, 20, accepted=4)
    target.switch(parse_switch({"policy": "goodput", "options": {}}, source="test"))
    assert learned(target) == before


@pytest.mark.parametrize("another_runs", [False, True])
def test_other_weights_drop_what_all_policies_have_learned(
    tmp_path: Path, another_runs: bool
) -> None:
    first = controller(tmp_path)
    run(first, 100, accepted=0)
    first.close()
    second = controller(tmp_path)
    assert second.policy.state()
    if another_runs:
        second.switch(parse_switch({"policy": "static", "options": {"k": 1}}, source="test"))
    second.start_over("weights are new")
    if another_runs:
        second.switch(parse_switch({"policy": "goodput", "options": {}}, source="test"))
    assert not second.policy.state()
    second.close()
    assert not controller(tmp_path).policy.state()


def test_what_a_killed_process_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    for kept in (True, False):
        path.with_name(f"{path.name}.0a1b2c3d.new").write_text("half")
        if not kept:
            path.unlink()
        controller(tmp_path)
        assert list(tmp_path.iterdir()) == [path] * kept


def test_an_engine_that_falls_idle_saves_what_it_has_learned(tmp_path: Path) -> None:
    first = controller(tmp_path)
    run(first, 5, accepted=0, seconds=1.0)
    first.flush()  # the process may be killed now
    assert learned(controller(tmp_path)) == learned(first)


def test_a_directory_that_cannot_be_written_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    with caplog.at_level(logging.WARNING):
        first = controller(blocked / "inside")
        run(first, 200, accepted=0, seconds=2.0)
        assert len([text for text in caplog.messages if "tried again" in text]) == 1
        assert first.counters.failures == {}
        assert first.counters.output_failures["saved state"] > 1
        blocked.unlink()
        run(first, 200, accepted=0, seconds=2.0)
    assert learned(controller(blocked / "inside"))
    assert len([text for text in caplog.messages if "works again" in text]) == 1


def test_an_engine_without_an_identity_says_that_nothing_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        first = controller(tmp_path, identity=None)
    assert "state_directory" in caplog.text
    run(first, 50, accepted=0)
    first.close()
    assert not list(tmp_path.iterdir())


CODE = """
import sys
from pathlib import Path
from adaptive_spec.config import Trace
from tests.core.operation.test_saved_state import controller, run
folder = Path(sys.argv[1])
target = controller(
    folder / "state",
    status_file=str(folder / "status.json"),
    trace=Trace(directory=str(folder / "trace"), segment_mb=0.02, max_segments=4),
)
while True:
    run(target, 60, accepted=1, seconds=1.0)
    print("steps", flush=True)
"""


@pytest.mark.slow
def test_killed_while_writing_and_started_again(tmp_path: Path) -> None:
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", CODE, str(tmp_path)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            for _ in range(3):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        assert msgspec.json.decode((tmp_path / "status.json").read_bytes())["fail_opens"] == {}
        assert sum(1 for _ in read_trace(tmp_path / "trace")) > 20
        assert len(list((tmp_path / "trace").iterdir())) <= 4
    trace = Trace(directory=str(tmp_path / "trace"), segment_mb=0.02, max_segments=4)
    after = controller(tmp_path / "state", status_file=str(tmp_path / "status.json"), trace=trace)
    assert learned(after)
    run(after, 60, accepted=1, seconds=1.0)
    after.close()
    assert after.status()["output_failures"] == {}
    assert not list(tmp_path.rglob("*.new"))
