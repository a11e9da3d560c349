"""What hostile clients, full disks, other users and forked children must not bring about."""

import errno
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import Config, ConfigError, Controller, Mode
from adaptive_spec.config import Trace
from adaptive_spec.operation import output_file, saved_state
from adaptive_spec.operation.output_file import OwnedFile, replace_file
from adaptive_spec.operation.run_time_switch import ControlFile, SwitchRequest
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.operation.status import Counters
from adaptive_spec.operation.trace import StepTrace
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policy import build_policy
from tests.core.controller.answers import FULL, PATIENT, context, outcome
from tests.core.operation.test_saved_state import controller, run
from tests.core.operation.test_trace import write_step

LOG = logging.getLogger("adaptive_spec.test_hostile")


def serve(target: Controller, steps: int, **changes: Any) -> list[Mode]:
    modes = []
    for step in range(1, steps + 1):
        modes.append(target.plan(context(step, now=float(step), **changes)).mode)
        target.observe(outcome(step, now=float(step)))
    return modes


def static(**config: Any) -> Controller:
    return Controller(build_policy("static", {"k": 2}), FULL, Config(fail_open=PATIENT, **config))


@pytest.mark.parametrize("name", ["\ud800", "x" * 2_000_000, "Ünïcode\x00\x1b[31m"])
def test_no_request_id_benches_the_policy_or_fills_the_trace(tmp_path: Path, name: str) -> None:
    target = static(trace=Trace(directory=str(tmp_path)))
    modes = serve(target, 40, request_ids=["a", "b", name])
    target.close()
    assert set(modes) == {Mode.ON}
    assert not target.counters.failures
    assert not target.counters.output_failures
    records = list(read_trace(tmp_path))
    assert len(records) == 40
    assert {len(set(record["ids"])) for record in records} == {3}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 100_000


def test_a_fault_in_our_own_code_benches_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    target = static()
    monkeypatch.setattr(Counters, "count_outcome", lambda *_: 1 / 0)
    assert set(serve(target, 200)) == {Mode.ON}
    assert target.counters.failures["outcome raised ZeroDivisionError"] == 200
    for _ in range(20):
        target.fault("hook read raised ValueError: of a client's making")
    assert not target.status()["benched"]


def test_a_disk_that_stays_full_erases_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = StepTrace(
        Trace(directory=str(tmp_path), segment_mb=0.005, max_segments=4), Counters(), LOG
    )
    for step in range(300):
        write_step(trace, context(step), outcome(step, now=0.1 * step))
    trace.flush(30.0)
    before = {path.name: path.stat().st_size for path in tmp_path.iterdir()}

    def full(handle: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        for step in range(300, 3000):
            write_step(trace, context(step), outcome(step, now=float(step)))
        trace.flush(4000.0)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == before


def test_folders_named_like_segments_do_not_stop_the_trace(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"steps-1-{number:06d}.jsonl").mkdir()
    trace = StepTrace(Trace(directory=str(tmp_path), max_segments=2), Counters(), LOG)
    write_step(trace, context(1), outcome(1))
    trace.close(0.0)
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 1


def test_a_second_engine_of_a_process_writes_its_status(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    for steps in (3, 5, 4):
        engine = static(status_file=str(path))
        serve(engine, steps)
        engine.close()
        assert json.loads(path.read_bytes())["steps"] == steps
        assert not engine.counters.output_failures


def test_a_forked_child_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    ready, wait = os.pipe(), os.pipe()
    owner = os.fork()
    if owner == 0:
        file = OwnedFile(path)
        file.replace(b"1")
        if os.fork() == 0:
            os.write(ready[1], b"x")
            os.read(wait[0], 1)
            os._exit(0)
        os.read(wait[0], 1)
        os._exit(0)
    try:
        assert os.read(ready[0], 1) == b"x"
        with pytest.raises(OSError, match="another process writes it"):
            OwnedFile(path).replace(b"2")
        os.kill(owner, 9)
        os.waitpid(owner, 0)
        OwnedFile(path).replace(b"2")
        assert path.read_bytes() == b"2"
    finally:
        os.write(wait[1], b"xx")


def test_threads_that_start_on_one_folder_lose_no_write(tmp_path: Path) -> None:
    failed: list[Exception] = []

    def start(number: int) -> None:
        try:
            for _ in range(150):
                saved_state.remove_temporaries(tmp_path / "state.json")
                replace_file(tmp_path / "state.json", str(number).encode())
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_file_made_anew_under_the_same_name_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another starter removes a temporary first, and its writer makes it again."""
    temporary, own = tmp_path / "state.json.0a1b2c3d.new", output_file.fcntl.flock
    temporary.write_bytes(b"old")

    def flock(handle: int, how: int) -> None:
        temporary.unlink()
        temporary.write_bytes(b"new")
        own(handle, how)

    monkeypatch.setattr(output_file.fcntl, "flock", flock)
    output_file.remove_unused(temporary)
    assert temporary.read_bytes() == b"new"


def test_states_of_one_server_are_bounded_and_others_are_kept(tmp_path: Path) -> None:
    other = controller(tmp_path, {"model": "another"})
    run(other, 20, 2)
    other.close()
    kept = {path.name for path in tmp_path.iterdir()}
    target = controller(tmp_path)
    for turn in range(40):
        options = {"tpot_allowance": round(0.001 * (turn + 1), 4)}
        target.switch(SwitchRequest(policy="goodput", options=options))
        run(target, 3, 2)
        target.flush()
        target._saved.save(1e9 + turn, target.policy, target.config)
    files = {path.name for path in tmp_path.iterdir()}
    assert kept <= files
    assert len(files - kept) == saved_state.MOST_FILES
    target.start_over("new weights")
    assert {path.name for path in tmp_path.iterdir() if path.suffix == ".json"} == kept
    assert len(list(tmp_path.iterdir())) == len(kept) + saved_state.MOST_FILES


def test_a_damaged_file_does_not_keep_outdated_states_in_use(tmp_path: Path) -> None:
    target = controller(tmp_path)
    run(target, 20, 2)
    target.close()
    for name in ("0.json", "goodput-1.json", "zzz.json"):
        (tmp_path / name).write_bytes(b"{damaged")
    (tmp_path / "folder.json").mkdir()
    target.start_over("new weights")
    left = {path.name for path in tmp_path.iterdir() if path.suffix == ".json"}
    assert left == {"0.json", "goodput-1.json", "zzz.json", "folder.json"}


class Stateful(StaticPolicy):
    """Has a state that cannot be read again, or ends the process."""

    large: Any = None

    def state(self) -> dict[str, Any]:
        if self.large is None:
            raise SystemExit(3)
        return {"x": self.large}


@pytest.mark.parametrize(
    "large", [[0.5] * 2_000_000, float("nan"), None], ids=["50 MB", "nan", "exit"]
)
def test_a_state_that_cannot_be_read_again_is_not_written(tmp_path: Path, large: Any) -> None:
    target = controller(tmp_path, policy="static", options={})
    policy = Stateful(StaticOptions())
    policy.large = large
    target.policy = policy
    run(target, 2000, 2)
    target.close()
    assert not list(tmp_path.iterdir())
    assert target.counters.output_failures["saved state"]


def test_the_control_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "control.json"
    path.write_text('{"policy": "off"}')
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="everybody may write it"):
        ControlFile(path).poll(0.0)
    path.chmod(0o600)
    assert ControlFile(path).poll(0.0) == SwitchRequest(policy="off")
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    if os.getuid() != 0:
        with pytest.raises(ConfigError, match="another user"):
            ControlFile(path).poll(0.0)


class Cheating(StaticPolicy):
    """Writes into its context, to get more drafts than there are."""

    def plan(self, context: Any) -> Any:
        context.draft_available[:] = 99
        return msgspec.structs.replace(super().plan(context), verify=np.full(3, 99))


class Leaving(StaticPolicy):
    """Ends the process in each method."""

    def plan(self, context: Any) -> Any:
        raise SystemExit(1)

    def observe(self, step: Any) -> None:
        raise SystemExit(2)

    def forget(self, slots: Any) -> None:
        raise SystemExit(3)

    def hazard_quality(self) -> dict[str, Any]:
        raise SystemExit(4)


@pytest.mark.parametrize("policy", [Cheating, Leaving])
def test_a_policy_neither_changes_its_context_nor_ends_the_engine(policy: Any) -> None:
    target = Controller(policy(StaticOptions(k=2)), FULL, Config(fail_open=PATIENT))
    target.slots.assign("a")
    for step in range(1, 20):
        plan = target.plan(context(step))
        assert plan.mode is Mode.ENGINE
        assert plan.verify.tolist() == [3, 2, 0]
        target.observe(outcome(step))
    target.finish(["a"])
    assert target.status()["benched"]
