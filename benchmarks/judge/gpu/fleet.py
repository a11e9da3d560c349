"""The engines that are up, each in a process: start those a stage needs, ask them, stop them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..processes import Process, ProcessError
from ..setup import V1, environment
from .setups import Options, arguments_of

WORKER = "benchmarks.judge.gpu.worker"
START_SECONDS = 200.0
ANSWER_SECONDS = 90.0
BETWEEN_STARTS = 2.0
"""vLLM reads the free memory at start: not all engines in the same moment."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}


class Fleet:
    """The engines that are up.

    Attributes:
        failed: why an engine does not start, by key; it is not tried again.
        started: keys of engines that have started.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.failed: dict[str, str] = {}
        self.started: set[str] = set()
        self._logs = Path(options.scratch) / "logs"
        self._processes: dict[str, Process] = {}
        self._said: dict[str, Any] = {}
        self._logs.mkdir(parents=True, exist_ok=True)

    def use(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Have these engines up and no others; the facts of those that were started.

        What fails to start is in `failed`. The old ones end first: vLLM refuses to start while
        memory is being given back.
        """
        for key in [key for key in self._processes if key not in keys]:
            self.stop(key)
        wanted = [key for key in keys if not self.has(key) and key not in self.failed]
        for key in wanted:
            variables = ENVIRONMENT if self._options.gpu else environment(V1)
            self._processes[key] = Process(WORKER, self._log_of(key), variables)
            self._processes[key].send(arguments_of(key, self._options))
            if self._options.gpu:
                time.sleep(BETWEEN_STARTS)
        found = {}
        for key in wanted:
            try:
                found[key] = self._answer(key, START_SECONDS)
                self.started.add(key)
            except ProcessError as error:
                self.failed[key] = str(error)
                self.stop(key)
        return found

    def has(self, key: str) -> bool:
        """Is this engine up?"""
        return key in self._processes

    def ask(self, key: str, do: str, **named: Any) -> Any:
        """Let an engine do one of `worker.COMMANDS`. Raises ProcessError if it fails."""
        if do == "settings":  # it switches the policy itself
            self._said.pop(key, None)
        self._processes[key].send({"do": do, "named": named})
        return self._answer(key, ANSWER_SECONDS)

    def log(self, key: str) -> str:
        """Return the output of an engine; empty for one that was never started."""
        path = self._log_of(key)
        return path.read_text(errors="replace") if path.exists() else ""

    def switch(self, key: str, request: dict[str, Any], *, anew: bool = False) -> None:
        """Send a request to our run-time switch, unless it was the last one this engine got.

        With `anew` it is sent in any case: a policy is to begin anew.
        """
        if anew or self._said.get(key) != request:
            self.ask(key, "control", request=request)
            self._said[key] = request

    def stop(self, key: str) -> None:
        """Stop an engine."""
        self._said.pop(key, None)
        self._processes.pop(key).close()

    def close(self) -> None:
        """Stop all engines."""
        for key in list(self._processes):
            self.stop(key)

    def _answer(self, key: str, seconds: float) -> Any:
        found: dict[str, Any] = msgspec.json.decode(self._processes[key].receive(seconds))
        if "error" in found:
            raise ProcessError(found["error"])
        return found["result"]

    def _log_of(self, key: str) -> Path:
        return self._logs / f"{key}.log"
