"""Engine processes: a line of JSON in, a line of JSON back; what an engine prints goes to a log."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 20.0
TAIL_LINES = 40
_STARTED = "JUDGE_STARTED"


class ProcessError(RuntimeError):
    """A process has ended or does not answer; the message ends with the last lines of its log."""


class Process:
    """One process. Messages are answered one at a time.

    Args:
        module: its program, which ends when its input is closed.
        log: appended to.
        environment: variables beside those of this process.
        python: of the environment that has the engine.
    """

    def __init__(
        self, module: str, log: Path, environment: Mapping[str, str], python: str = sys.executable
    ) -> None:
        self.log = log
        # A configuration for other servers must not switch our plugin on in every engine.
        inherited = {k: v for k, v in os.environ.items() if k != "ADAPTIVE_SPEC_CONFIG"}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [python, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**inherited, **environment},
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def send(self, message: object) -> None:
        """Send a message; `receive` waits for the answer."""
        with suppress(OSError):
            self._to.write(msgspec.json.encode(message) + b"\n")
            self._to.flush()

    def receive(self, seconds: float | None = None) -> bytes:
        """Wait for an answer. Raises ProcessError for none, or none in time."""
        late = threading.Timer(seconds, self.process.kill) if seconds is not None else None
        if late is not None:
            late.start()
        line = self._from.readline()
        if late is not None:
            late.cancel()
        if not line:
            status = self.process.wait()
            raise ProcessError(
                f"it ended with status {status}; its log, {self.log}, ends with\n{self._tail()}"
            )
        return line

    def ask(self, message: object, seconds: float | None = None) -> bytes:
        """Send a message and wait for its answer, as `receive` does."""
        self.send(message)
        return self.receive(seconds)

    def close(self) -> None:
        """Let it end, then make sure."""
        with suppress(OSError):
            self._to.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._from.close()

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


def begin_anew(module: str, variables: Mapping[str, str]) -> None:
    """Begin ``python -m module`` anew, once, with what an engine needs from the start on."""
    if _STARTED not in os.environ:
        words = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, **variables, _STARTED: "1"})


def answer_lines(answer_of: Callable[[Iterator[bytes]], Iterator[Any]]) -> None:
    """Write, as lines of JSON, what a function makes of the lines of standard input."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what the engine prints goes to the log
    for answer in answer_of(iter(sys.stdin.buffer)):
        answers.write(msgspec.json.encode(answer) + b"\n")
