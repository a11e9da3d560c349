"""Engine processes: start those a stage needs, ask them, stop them."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from .engine import Setup
from .setups import Machine, setup_for

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 200.0
ANSWER_SECONDS = 90.0
STOP_SECONDS = 20.0
BETWEEN_STARTS = 2.0
"""vLLM reads the free memory at start: not all engines in the same moment."""
TAIL_LINES = 40
STEERING = ("settings",)
"""Commands that switch the policy themselves."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
CPU_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


class EngineError(RuntimeError):
    """An engine failed; the message ends with the last lines of its log."""


class EngineProcess:
    """One process. Commands are answered one at a time."""

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        # A configuration for other servers must not switch our plugin on in every engine.
        inherited = {k: v for k, v in os.environ.items() if k != "ADAPTIVE_SPEC_CONFIG"}
        path = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpu.engine_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**inherited, **environment, "PYTHONPATH": path},
                start_new_session=True,  # so that EngineCore can be ended with it
            )
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def send(self, command: dict[str, Any]) -> None:
        """Send a command; `receive` waits for its answer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()

    def receive(self, seconds: float) -> Any:
        """Wait for an answer. Raises EngineError for none in time, or one that is an error."""
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._kill()
            raise EngineError(f"no answer in {seconds:.0f} s\n{self._tail()}") from None
        if not line:
            self._answers.put(b"")  # for whoever asks again
            raise EngineError(f"ended with status {self._process.wait()}\n{self._tail()}")
        found: dict[str, Any] = msgspec.json.decode(line)
        if "error" in found:
            raise EngineError(f"{found['error']}\n{self._tail()}")
        return found["result"]

    def stop(self) -> None:
        """Ask the process to end, then make sure."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        self._listener.join(STOP_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])


class Fleet:
    """The engines that are up.

    On a CPU one process has all engines, and keys with equal setups share one.

    Attributes:
        machine: what engines are made for.
        failed: why an engine does not start, by key; it is not tried again.
        started: keys of engines that have started.
    """

    def __init__(self, machine: Machine, logs: Path) -> None:
        self.machine = machine
        self.failed: dict[str, str] = {}
        self.started: set[str] = set()
        self._logs = logs
        self._process_of: dict[str, EngineProcess] = {}
        self._shared: EngineProcess | None = None
        self._engine_of: dict[str, str] = {}
        self._setups: dict[str, Setup] = {}
        self._said: dict[str, Any] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def use(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Have these engines up and, on a GPU, no others; the facts of those that were started.

        What fails to start is in `failed`. The old ones end first: vLLM refuses to start while
        memory is being given back.
        """
        if self.machine.gpu:
            for key in [key for key in self._process_of if key not in keys]:
                self.stop(key)
        wanted = [key for key in keys if key not in self._process_of and key not in self.failed]
        under_way = []
        for key in wanted:
            setup = setup_for(key, self.machine)
            same = [other for other, known in self._setups.items() if known == setup]
            if same and not self.machine.gpu:
                self._process_of[key] = self._process_of[same[0]]
                self._engine_of[key] = same[0]
                continue
            self._setups[key], self._engine_of[key] = setup, key
            process = self._process_of[key] = self._process(key)
            process.send({"do": "start", "key": key, "setup": setup})
            under_way.append(key)
            if self.machine.gpu:
                time.sleep(BETWEEN_STARTS)
        found = {}
        for key in under_way:
            try:
                found[key] = self._process_of[key].receive(START_SECONDS)
                self.started.add(key)
            except EngineError as error:
                self.failed[key] = str(error)
                self.stop(key)
        return found

    def has(self, key: str) -> bool:
        """Is this engine up?"""
        return key in self._process_of

    def ask(self, key: str, do: str, *arguments: Any, **named: Any) -> Any:
        """Let an engine do one of `engine_process.COMMANDS`. Raises EngineError if it fails."""
        if do in STEERING:
            self.forget_switch(key)
        process = self._process_of[key]
        command = {"do": do, "key": self._engine_of[key], "arguments": arguments, "named": named}
        process.send(command)
        return process.receive(ANSWER_SECONDS)

    def log(self, key: str) -> str:
        """What an engine has printed; empty for one that was never started."""
        path = self._log_of(key)
        return path.read_text(errors="replace") if path.exists() else ""

    def switch(self, key: str, request: dict[str, Any]) -> None:
        """Send a request to our run-time switch, unless it was the last one this engine got."""
        engine = self._engine_of[key]
        if self._said.get(engine) != request:
            self.ask(key, "control", request)
            self._said[engine] = request

    def forget_switch(self, key: str) -> None:
        """The next switch is sent, whatever the last one was: a policy is to begin anew."""
        self._said.pop(self._engine_of.get(key, key), None)

    def stop(self, key: str) -> None:
        """Stop an engine, and on a CPU all of them with the last key."""
        process = self._process_of.pop(key)
        self._said.pop(self._engine_of.pop(key, key), None)
        self._setups.pop(key, None)
        if process not in self._process_of.values():
            process.stop()
            if process is self._shared:
                self._shared = None

    def close(self) -> None:
        """Stop all engines."""
        for key in list(self._process_of):
            self.stop(key)

    def _process(self, key: str) -> EngineProcess:
        if self.machine.gpu:
            return EngineProcess(self._log_of(key), ENVIRONMENT)
        if self._shared is None:
            self._shared = EngineProcess(self._log_of(key), {**ENVIRONMENT, **CPU_ENVIRONMENT})
        return self._shared

    def _log_of(self, key: str) -> Path:
        return self._logs / f"{key if self.machine.gpu else 'engines'}.log"
