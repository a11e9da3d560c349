"""Processes are started and ended; none of them is a vLLM."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import server
from demo.command import Files
from demo.errors import DemoError
from demo.guard import Guard, end, exists

PARENT = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else signal.SIG_DFL)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("started", flush=True)
time.sleep(60)
"""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(models=tmp_path, output=tmp_path)


@pytest.fixture
def group() -> Iterator[int]:
    """A process group of two."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True
    )
    process.stdout.readline()
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie stays in the group
    yield process.pid
    end([process.pid], patience=0.0)
    process.wait()
    process.stdout.close()


def run_instead(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    monkeypatch.setattr(server, "serve_command", lambda *_: list(command))


def wait_until_gone(group: int, seconds: float = 10.0) -> bool:
    """Ended children that nobody has waited for still count as members."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(group, os.WNOHANG)
        if not exists(group):
            return True
        time.sleep(0.02)
    return False


def test_a_server_is_stopped_with_its_children(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_instead(monkeypatch, sys.executable, "-c", PARENT)
    with server.running(files, keep=False) as ours:
        while not ours.log.read_text():
            time.sleep(0.02)
        ours.require_running()
        assert exists(ours.group)
    assert wait_until_gone(ours.group)


def test_the_server_is_stopped_when_something_fails(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_instead(monkeypatch, sys.executable, "-c", PARENT)
    groups = []

    def fail() -> None:
        with server.running(files, keep=True) as ours:
            groups.append(ours.group)
            raise DemoError("stop here")

    with pytest.raises(DemoError, match="stop here"):
        fail()
    assert wait_until_gone(groups[0])


def test_the_server_stays_if_asked(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    run_instead(monkeypatch, sys.executable, "-c", PARENT)
    with server.running(files, keep=True) as ours:
        pass
    try:
        ours.require_running()
        assert exists(ours.group)
    finally:
        ours.stop()


def test_a_server_that_ends_shows_the_end_of_its_log(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "print('\\n'.join(f'line {n}' for n in range(50))); raise SystemExit(3)"
    run_instead(monkeypatch, sys.executable, "-c", script)
    with server.running(files, keep=False) as ours:
        ours.process.wait()
        with pytest.raises(DemoError, match="the server ended with status 3") as raised:
            asyncio.run(server.wait_ready(ours, lambda line: None))
    assert raised.value.details.splitlines()[-1] == "line 49"
    assert len(raised.value.details.splitlines()) == server.LOG_TAIL_LINES


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("INFO adaptive_spec: mode=shadow policy=goodput", "doesn't act"),
        ("INFO ready", "is not switched on"),
    ],
)
def test_our_plugin_must_be_on(
    line: str, message: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_instead(monkeypatch, sys.executable, "-c", f"print({line!r})")
    with server.running(files, keep=False) as ours:
        ours.process.wait()
        with pytest.raises(DemoError, match=message):
            server.require_switched_on(ours)
        ours.log.write_text("(EngineCore pid=1) INFO adaptive_spec: mode=on policy=goodput\n")
        assert server.require_switched_on(ours) == "mode=on policy=goodput"


def test_the_guard_ends_what_a_killed_demo_leaves(group: int) -> None:
    guard = Guard()
    guard.add(group)
    assert exists(group)
    guard.close()  # what a kill does, too: the pipe is closed
    assert wait_until_gone(group)


def test_the_guard_leaves_what_was_dropped(group: int) -> None:
    guard = Guard()
    guard.add(group)
    guard.drop(group)
    guard.close()
    assert exists(group)


def test_too_little_memory_is_said_before_anything_starts(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 8000000 kB\nMemAvailable: 2097152 kB\n")
    with pytest.raises(DemoError, match="the server needs about 3 GiB of memory, 2 GiB are"):
        server.require_memory(meminfo)
    server.require_memory(tmp_path / "none")
