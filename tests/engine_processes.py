"""What tests of vLLM and of SGLang share: skips, one engine at a time, servers, two ranks."""

import importlib.util
import multiprocessing
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def skip_without(package: str, items: list[pytest.Item], folder: Path) -> None:
    """Skip the tests of a folder that need an engine, where it is not installed."""
    if importlib.util.find_spec(package) is not None:
        return
    skip = pytest.mark.skip(reason=f"{package} is not installed; `make test` sets it up")
    for item in items:
        if folder in item.path.parents and (
            item.get_closest_marker("engine") or item.get_closest_marker("http")
        ):
            item.add_marker(skip)


class OneAtATime:
    """Holds at most one engine: the next one closes the last."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._key: Any = None

    def hold(self, key: str, start: Callable[[], Any]) -> Any:
        """Return the engine at hand if it is of this key, or a new one."""
        if key != self._key:
            self.clear()
            self._engine, self._key = start(), key
        return self._engine

    def clear(self) -> None:
        engine, self._engine, self._key = self._engine, None, None
        if engine is not None:
            engine.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def running_server(
    command: Sequence[str], environment: Mapping[str, str], url: str, log: Path, seconds: float
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers `/health`, in a process group of its own; ended afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        _wait_until_ready(process, url, log, seconds)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _wait_until_ready(
    process: subprocess.Popen[bytes], url: str, log: Path, seconds: float
) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and process.poll() is None:
        try:
            urllib.request.urlopen(url + "/health", timeout=2)
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    pytest.fail("no server:\n" + log.read_text(errors="replace")[-4000:])


def in_two_processes(function: Callable[..., None], *shared: Any) -> list[Any]:
    """What both ranks put, in order: each runs `function(rank, *shared, answers)`."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [
        context.Process(target=_run, args=(function, rank, shared, answers)) for rank in (0, 1)
    ]
    for each in ranks:
        each.start()
    found = sorted(answers.get(timeout=240) for _ in ranks)
    for each in ranks:
        each.join(60)
        assert each.exitcode == 0
    return found


def _run(function: Callable[..., None], rank: int, shared: tuple[Any, ...], answers: Any) -> None:
    function(rank, *shared, answers)
    answers.close()
    answers.join_thread()
    # A thread of gloo's may outlive its group, and would abort the interpreter's own end.
    os._exit(0)
