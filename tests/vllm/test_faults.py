"""Faults injected into a running server: every answer stays right, and everything comes back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engines import PATIENT
from scenarios import prompts
from server import Server, serving

from adaptive_spec.operation.segments import read_trace

pytestmark = [pytest.mark.http, pytest.mark.long]

TEXTS = prompts(16, 41)
PATH = "/v1/adaptive_spec"
FAULTY = "faulty_policies:FaultyPolicy"
KINDS = {"raises": "plan raised RuntimeError", "sleeps": "plan took", "burns": "plan took"}


class Load:
    """Clients that compare every answer with that of a server without speculation."""

    def __init__(self, server: Server, right: dict[str, tuple[int, ...]]) -> None:
        self.answered = self.wrong = self.failed = 0
        self._server, self._right = server, right
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def client(self, first: int) -> None:
        place = first
        while not self._stop.is_set():
            text = TEXTS[place % len(TEXTS)]
            place += 1
            try:
                answer = self._server.complete(text)
            except OSError:
                with self._lock:
                    self.failed += 1
                if self._stop.wait(0.2):
                    return
                continue
            with self._lock:
                self.answered += 1
                self.wrong += tuple(answer["choices"][0]["token_ids"]) != self._right[text]

    @contextmanager
    def running(self, clients: int = 6) -> Iterator[Load]:
        threads = [threading.Thread(target=self.client, args=(3 * i,)) for i in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(120)


def until(holds: Callable[[], Any], what: str, seconds: float = 90.0) -> Any:
    """Wait until something holds; the load goes on meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.2)
    return pytest.fail(f"{what}: waited in vain")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, small enough to fill."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_faults_of_policy_clock_control_file_and_disk(
    models: dict[str, Path],
    unspeculated: dict[str, tuple[int, ...]],
    tmp_path: Path,
    small_disk: Path,
) -> None:
    adaptive = {
        "policy": FAULTY,
        "fail_open": {"max_decision_ms": 100, "bench_seconds": 2},
        "status_file": str(small_disk / "status.json"),
        "trace": {"directory": str(small_disk / "trace"), "segment_mb": 0.2, "max_segments": 3},
        "state_directory": str(small_disk / "state"),
    }
    with serving(models, tmp_path, adaptive) as server:
        load = Load(server, unspeculated)
        with load.running():
            until(lambda: server.engine()["steps"] > 20, "steps")
            for fault, kind in KINDS.items():
                before = sum_of(server.engine()["fail_opens"], kind)
                server.ask(PATH, {"options": {"fault": fault}})
                until(lambda: server.engine()["benched"], f"{fault}: benched")
                assert sum_of(server.engine()["fail_opens"], kind) >= before + 5
                comes_back(server)
            server.ask(PATH, {"options": {"fault": "leaks"}})
            until(lambda: server.engine()["last_reason"] == "leaking", "leaks")
            comes_back(server)
            until(lambda: server.engine()["last_reason"] == "random, alive 1", "memory is freed")
            for hours in (1000.0, -1000.0, 0.0):
                server.ask(PATH, {"options": {"fault": "clock", "hours": hours}})
                goes_on(server)
            comes_back(server)
            garbage_in_the_control_file(server)
            full_disk_and_back(server, small_disk)
        status = server.engine()
        assert load.wrong == load.failed == 0
        assert load.answered > 50
        assert status["policy"] == "faulty"
        assert sum(status["fail_opens"].values()) == sum(
            sum_of(status["fail_opens"], kind) for kind in set(KINDS.values())
        ), status["fail_opens"]
    assert sum(1 for _ in read_trace(small_disk / "trace")) > 50
    assert len(list((small_disk / "trace").iterdir())) <= 3


def sum_of(counts: dict[str, int], kind: str) -> int:
    return sum(count for name, count in counts.items() if name.startswith(kind))


def goes_on(server: Server) -> None:
    """Steps follow, and the policy decides them."""
    before = server.engine()["steps_by_mode"].get("on", 0)
    until(lambda: server.engine()["steps_by_mode"].get("on", 0) > before + 20, "decisions")


def comes_back(server: Server) -> None:
    """Without the fault the policy decides again; benched ones after their time."""
    server.ask(PATH, {"options": {"fault": "none"}})
    until(lambda: not server.engine()["benched"], "the bench ends")
    goes_on(server)


def garbage_in_the_control_file(server: Server) -> None:
    for content in (b"[" * 60_000, b"\xff\xfe\x00", b'{"mode": "on", "options": {"hours": 1e999}}'):
        server.control.write_bytes(content)
        until(lambda: server.engine()["control_file_error"], "the control file's error")
        server.control.write_text(json.dumps({"mode": "on"}))
        until(lambda: not server.engine()["control_file_error"], "the control file")
    server.control.unlink()
    os.mkfifo(server.control)
    until(lambda: server.engine()["control_file_error"], "the pipe")
    goes_on(server)


def full_disk_and_back(server: Server, disk: Path) -> None:
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (4 << 20))
    failures = until(
        lambda: (
            (found := server.engine()["output_failures"]).keys() >= {"status file", "trace"}
            and found
        ),
        "failures are counted",
    )
    goes_on(server)
    assert "adaptive_spec_output_failures_total{" in server.ask("/metrics", key=None)
    old = json.loads((disk / "status.json").read_text())["steps"]
    filler.unlink()
    until(lambda: json.loads((disk / "status.json").read_text())["steps"] > old, "the status file")
    written = max(path.stat().st_mtime_ns for path in (disk / "trace").iterdir())
    until(
        lambda: max(path.stat().st_mtime_ns for path in (disk / "trace").iterdir()) > written,
        "the trace",
    )
    assert server.engine()["output_failures"].keys() == failures.keys()


def end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """As an orchestrator does: a signal to the server, and after a while SIGKILL to all of it."""
    process.send_signal(number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def test_killed_under_load_and_started_again(
    models: dict[str, Path], unspeculated: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    adaptive = {
        "policy": "goodput",
        "fail_open": PATIENT,
        "state_directory": str(tmp_path / "state"),
    }
    for turn, number in enumerate((signal.SIGTERM, signal.SIGKILL, None)):
        with serving(models, tmp_path, adaptive) as server:
            log = server.log.read_text()
            assert ("resumes from" in log) is (turn > 0), log[-2000:]
            load = Load(server, unspeculated)
            with load.running():
                until(lambda: load.answered > 12, "answers")  # noqa: B023
                until(lambda: any((tmp_path / "state").glob("*.json")), "saved state")
                assert server.engine()["fail_opens"] == {}
                if number is not None:
                    end(server.process, number)
            assert load.wrong == 0
        [kept] = (tmp_path / "state").iterdir()
        assert kept.suffix == ".json"
        assert sum(1 for _ in read_trace(server.trace)) > 12
