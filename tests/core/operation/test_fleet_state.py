"""Each replica writes its own object; a new one starts from those of its kind, and never waits."""

import contextlib
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptive_spec import Capability, Config, Controller, Level
from adaptive_spec.config import FailOpen, parse_config
from adaptive_spec.errors import ConfigError
from adaptive_spec.operation import fleet_state, object_store
from adaptive_spec.operation.object_store import Found, open_store
from adaptive_spec.operation.run_time_switch import parse_switch
from adaptive_spec.step import FinishedStep
from tests import steps as made
from tests.core.operation.test_saved_state import learned

FULL = Capability(level=Level.FULL, max_draft_tokens=4)
SERVER = {"model": "a", "device": "x", "engine": "vllm 1"}


def controller(
    url: Path | str, identity: dict[str, str] | None = SERVER, **changes: Any
) -> Controller:
    config = Config(
        state=str(url),
        fail_open=FailOpen(max_decision_ms=60_000),  # a slow machine is no fault here
    )
    config = msgspec.structs.replace(config, **changes)
    return Controller.from_config(config, FULL, identity=identity)


POOR, GOOD = (0, 0, 1, 0, 2), (1, 2, 4, 3, 4)
"""Accepted drafts of four, step after step."""


def run(
    target: Controller, steps: int, accepted: tuple[int, ...] = POOR, seconds: float = 0.01
) -> None:
    """Steps of three requests that verify all four drafts."""
    for step in range(1, steps + 1):
        context = made.context(3, FULL, step=step, context_tokens=50, now=step * seconds)
        target.plan(context)
        number = accepted[step % len(accepted)]
        target.observe(made.outcome(context, 4, number, seconds=seconds))


def replica(
    url: Path | str, accepted: tuple[int, ...] = POOR, identity: dict[str, str] = SERVER
) -> None:
    """A replica that serves for a while, and ends."""
    target = controller(url, identity)
    run(target, 400, accepted)
    target.close()


def first_belief(target: Controller) -> Any:
    """Belief about the first draft before anything was observed here."""
    run(target, 1)
    return learned(target)["acceptance"]["positions"]["prior_mean"][0]


def width(target: Controller) -> Any:
    """Variance of that belief."""
    run(target, 1)
    return learned(target)["acceptance"]["positions"]["prior_covariance"][0][0]


def test_each_replica_writes_its_own_object_and_a_new_one_starts_from_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone = first_belief(controller(tmp_path / "elsewhere"))
    for _ in range(3):
        replica(tmp_path)
    assert len(list(tmp_path.glob("goodput-*.json"))) == 3
    with caplog.at_level(logging.INFO):
        fourth = controller(tmp_path)
    assert "starts from 3 objects" in caplog.text
    assert first_belief(fourth) < alone - 0.7
    assert learned(fourth)["step_times"]["steps"] > 300


@pytest.mark.parametrize(
    ("changed", "shares"),
    [
        ({"device": "y"}, True),
        ({"engine": "vllm 2"}, True),
        ({"model": "b"}, False),
        ({"another": "value"}, False),
    ],
)
def test_another_device_or_version_tells_less_and_another_model_nothing(
    tmp_path: Path, changed: dict[str, str], shares: bool
) -> None:
    for _ in range(3):
        replica(tmp_path)
    alike, other = controller(tmp_path), controller(tmp_path, {**SERVER, **changed})
    alone = first_belief(controller(tmp_path / "elsewhere"))
    if not shares:
        assert first_belief(other) == alone
        return
    assert first_belief(other) < alone - 0.5
    assert width(alike) < width(other) < 1.0
    assert learned(other)["step_times"]["steps"] < 300  # its own


def test_old_objects_count_less_and_go_after_a_month(tmp_path: Path) -> None:
    replica(tmp_path)
    [path] = tmp_path.iterdir()
    content = json.loads(path.read_bytes())
    widths = []
    for days in (0, 20, 40):
        written = time.time() - 86_400 * days
        path.write_text(json.dumps(content | {"written": written}))
        os.utime(path, (written, written))
        widths.append(width(controller(tmp_path)))
    assert widths[0] < widths[1] < widths[2] == 1.0
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Input data was truncated"),
        (b"not JSON", "invalid"),
        (b"[" * 5000, "got `array`"),
        (b'{"schema": ' + b"[" * 5000, "got `array`"),
        (b'{"schema": 1}', "missing required field"),
        (b" " * (5 << 20), "more than"),
        ("schema", "another model"),
        ("identity", "another model"),
        ("policy", "another policy"),
        ("options", "another policy"),
        ("state", "schema"),
    ],
)
def test_what_cannot_be_used_is_left_out_by_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | str, said: str
) -> None:
    replica(tmp_path)
    [good] = tmp_path.iterdir()
    if isinstance(content, str):
        changes: dict[str, Any] = {
            "schema": 2,
            "identity": {"model": "b"},
            "policy": "static",
            "options": {"prior_hazard": 0.5},
            "state": {"schema": 7},
        }
        whole = json.loads(good.read_bytes())
        content = json.dumps(whole | {content: changes[content]}).encode()
    bad = good.with_name(re.sub("[^-]*.json$", "00000000.json", good.name))
    bad.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        second = controller(tmp_path)
    [line] = caplog.messages
    assert said in line
    assert bad.name in line
    assert first_belief(second) < 0.3
    assert second.counters.failures == {}


def test_a_link_or_a_pipe_in_the_folder_stops_nobody(tmp_path: Path) -> None:
    replica(tmp_path)
    [good] = tmp_path.iterdir()
    start = good.name.rpartition("-")[0]
    os.mkfifo(tmp_path / f"{start}-pipe.json")
    (tmp_path / f"{start}-folder.json").mkdir()
    (tmp_path / f"{start}-nowhere.json").symlink_to(tmp_path / "nowhere")
    assert first_belief(controller(tmp_path)) < 0.3


def test_the_newest_objects_are_read_and_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replica(tmp_path)
    [path] = tmp_path.iterdir()
    start = path.name.rpartition("-")[0]
    for number in range(9):
        copy = tmp_path / f"{start}-{number}.json"
        copy.write_bytes(path.read_bytes())
        os.utime(copy, (time.time() - 100 * number,) * 2)
    path.unlink()
    half = tmp_path / f"{start}-x.json.00000000.new"
    half.write_bytes(b"half")
    os.utime(half, (time.time() - 7200,) * 2)
    monkeypatch.setattr(fleet_state, "MOST_READ", 4)
    monkeypatch.setattr(fleet_state, "MOST_KEPT", 6)
    with caplog.at_level(logging.INFO):
        controller(tmp_path)
    assert "from 4 objects" in caplog.text
    assert {each.name[-6] for each in tmp_path.iterdir()} == set("012345")
    assert not half.exists()


def test_it_is_written_while_the_server_runs_once_it_has_something_to_tell(tmp_path: Path) -> None:
    target = controller(tmp_path)
    run(target, 299, seconds=1.0)
    target.close()
    assert not list(tmp_path.iterdir())
    target = controller(tmp_path)
    run(target, 400, seconds=1.0)
    target._fleet._writer.close(10.0)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_switch_and_back_again_loses_nothing_and_reads_nothing(tmp_path: Path) -> None:
    target = controller(tmp_path)
    run(target, 400)
    before = learned(target)
    for _ in range(2):
        replica(tmp_path, GOOD)
    target.switch(parse_switch({"policy": "static", "options": {"k": 1}}, source="test"))
    run(target, 20, GOOD)
    target.switch(parse_switch({"policy": "goodput", "options": {}}, source="test"))
    assert learned(target) == before


def test_other_weights_take_the_object_back(tmp_path: Path) -> None:
    target = controller(tmp_path)
    run(target, 400, seconds=1.0)
    target.start_over("weights are new")
    target.close()
    assert not list(tmp_path.iterdir())


def test_a_policy_that_fails_hands_nothing_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = controller(tmp_path)
    run(target, 400, seconds=1.0)

    def broken(step: FinishedStep) -> None:
        raise OverflowError("a number of an object")

    monkeypatch.setattr(target.policy, "observe", broken)
    run(target, 30)
    assert target.status()["benched"]
    target.close()
    assert not list(tmp_path.iterdir())


def test_a_policy_that_merges_nothing_takes_the_newest_state(tmp_path: Path) -> None:
    for accepted in (POOR, GOOD):
        target = controller(tmp_path, policy="bandit")
        run(target, 400, accepted)
        state = learned(target)
        target.close()
    newest = controller(tmp_path, policy="bandit")
    assert learned(newest) == state


def test_an_engine_without_an_identity_says_that_nothing_is_shared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        target = controller(tmp_path, None)
    assert "`state` is not used" in caplog.text
    run(target, 400)
    target.close()
    assert not list(tmp_path.iterdir())


def test_one_of_both_places_is_given() -> None:
    with pytest.raises(ConfigError, match="in place of `state_directory`"):
        parse_config({"state": "a", "state_directory": "b"}, source="test")


class Stuck:
    """A store that answers when it is told to."""

    def __init__(self) -> None:
        self.go, self.asked, self.written = threading.Event(), 0, 0

    def list(self, start: str) -> list[Found]:
        return []

    def write(self, name: str, content: bytes) -> None:
        self.asked += 1
        self.go.wait(60)
        self.written += 1

    def remove(self, name: str) -> None:
        self.go.wait(60)


def test_a_store_that_stops_costs_no_step_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = Stuck()
    monkeypatch.setattr(fleet_state, "open_store", lambda url: stuck)
    monkeypatch.setattr(fleet_state, "_STUCK_SECONDS", 0.0)
    target = controller(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(8):
            run(target, 400, seconds=1.0)  # dozens of writes are due
    assert (stuck.asked, stuck.written) == (1, 0)
    assert target.counters.failures == {}
    assert target.counters.output_failures["fleet state"]
    assert len([text for text in caplog.messages if "no answer" in text]) == 1
    stuck.go.set()
    target.close()
    assert 1 < stuck.written < 4  # the one that hung, and the newest


def test_a_store_that_does_not_answer_does_not_stop_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asleep = threading.Event()
    monkeypatch.setattr(fleet_state, "open_store", lambda url: asleep.wait(60))
    monkeypatch.setattr(fleet_state, "READ_SECONDS", 0.05)
    with caplog.at_level(logging.WARNING):
        target = controller(tmp_path)
    asleep.set()
    assert len([text for text in caplog.messages if "no answer within" in text]) == 1
    run(target, 20)
    assert target.counters.failures == {}


@pytest.mark.parametrize("url", ["nosuchscheme://bucket/folder", "s3://no-such/bucket"])
def test_a_scheme_without_its_driver_is_said_in_one_line(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("fsspec")
    with caplog.at_level(logging.WARNING):
        target = controller(url)
        run(target, 400)
        target.close()
    assert "learning starts anew" in caplog.messages[0]
    assert target.counters.failures == {}
    assert target.counters.output_failures["fleet state"]


def test_objects_of_a_url_are_those_of_a_folder(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    for _ in range(2):
        replica("memory://fleet/state")
    names = [each["name"] for each in fsspec.filesystem("memory").ls("/fleet/state")]
    assert len(names) == 2
    assert all(name.endswith(".json") for name in names)
    assert first_belief(controller("memory://fleet/state")) < 0.3
    store = open_store("memory://fleet/state")
    for each in store.list("goodput-"):
        assert each.written > time.time() - 600
        with pytest.raises(OSError, match="more than 10 bytes"):
            store.read(each.name, 10)
        store.remove(each.name)
        store.remove(each.name)
    assert not store.list("")
    assert open_store("memory://nothing/here").list("") == []


def test_a_folder_may_be_named_by_a_url(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/deep").write("a.json", b"1")
    assert (tmp_path / "deep" / "a.json").read_bytes() == b"1"


def test_fsspec_is_imported_for_a_scheme_alone(tmp_path: Path) -> None:
    code = (
        "import sys; from adaptive_spec.operation.object_store import open_store; "
        f"open_store({str(tmp_path)!r}).write('a.json', b'1'); print('fsspec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def write_for_ever(folder: Path, name: str, told: int) -> None:
    store = open_store(str(folder))
    for number in range(10**9):
        store.write(name, (f"{number:09}" * 6_000 + "end").encode())
        os.write(told, b"x")


@pytest.mark.slow
def test_writers_that_are_killed_leave_whole_objects(tmp_path: Path) -> None:
    """16 at a time, killed at random in 200 writes; no object is torn, none is lost."""
    draw, store = random.Random(5), open_store(str(tmp_path))
    writes, names = 0, [f"replica-{number}.json" for number in range(16)]
    alive: dict[str, tuple[int, int]] = {}

    def begin(name: str) -> None:
        read, told = os.pipe()
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                write_for_ever(tmp_path, name, told)
            os._exit(1)
        os.close(told)
        alive[name] = child, read

    def end(name: str) -> None:
        child, read = alive.pop(name)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)

    def whole(name: str) -> bool:
        content = store.read(name, 1 << 20).decode()
        return content == content[:9] * 6_000 + "end"

    try:
        for _ in range(1 << 20):
            for name in names:
                if name not in alive:
                    begin(name)
            for name in draw.sample(names, 8):
                for _ in range(draw.randrange(1, 12)):
                    writes += len(os.read(alive[name][1], 1))
                end(name)
                assert whole(name)
            if writes >= 200:
                break
    finally:
        for name in list(alive):
            end(name)
    assert all(whole(name) for name in names)


def test_no_more_than_a_bound_of_names_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_MOST_LISTED", 5)
    for number in range(9):
        (tmp_path / f"{number}.json").touch()
    assert len(open_store(str(tmp_path)).list("")) == 5
