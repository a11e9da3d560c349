"""The parent's side of the engine processes: start, ask, stop.

An engine process waits for its next command without using a CPU, and ends with its parent, because
its input is then closed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from demo.arms import ROOT, model_threads
from demo.servers import tail

from .arms import KMAX, PLUGIN_ENGINES, SUFFIX_ENGINE
from .engine import MTP, SUFFIX, Load, Setup
from .errors import BenchmarkError

STOP_SECONDS = 20.0
NEEDED_GB = 2.0

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}


def setup_for(
    engine: str,
    models: Path,
    draft: str,
    draft_sampling: str,
    adaptive: Mapping[str, Any] | None = None,
) -> Setup:
    """How the engine of this key is configured."""
    target = MTP if draft == MTP else "target_big"
    if engine == "none":
        return Setup(models=str(models), target=target)
    if engine == SUFFIX_ENGINE:
        draft = SUFFIX
    own = engine.removeprefix("own-engine")
    ours = PLUGIN_ENGINES.get(engine)
    return Setup(
        models=str(models),
        target=target,
        draft=draft,
        k=int(own) if own.isdigit() else KMAX,
        draft_sampling=draft_sampling,
        adaptive={**ours, **(adaptive or {})} if ours is not None else None,
    )


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of engine processes. One core is left to the rest of the machine."""
    # A configuration for other servers must not switch our plugin on in every engine.
    inherited = {name: value for name, value in environ.items() if name != "ADAPTIVE_SPEC_CONFIG"}
    path = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH", "")]))
    threads = {"OMP_NUM_THREADS": str(model_threads())}
    return {**inherited, **ENVIRONMENT, **threads, "PYTHONPATH": path}


class EngineProcess:
    """One engine process. Commands are answered one at a time."""

    def __init__(self, key: str, setup: Setup, log: Path) -> None:
        self.key = key
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *("-m", "benchmarks.vllm_cpu.engine_process"),
                    msgspec.json.encode(setup).decode(),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                start_new_session=True,  # Ctrl-C is for the benchmark alone
            )

    def wait_ready(self) -> None:
        """Until the engine is built. Raises BenchmarkError with the end of its log if it fails."""
        self._answer()

    def serve(
        self,
        load: Load,
        *,
        table: Sequence[tuple[int, int, int]] | None = None,
        policy: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Work a load off under vLLM's table of K or a policy of ours; see `BenchEngine.serve`."""
        return self._ask(
            {"do": "serve", "load": msgspec.to_builtins(load), "table": table, "policy": policy}
        )

    def status(self) -> dict[str, Any]:
        """Our plugin's counters."""
        return self._ask({"do": "status"})

    def stop(self) -> None:
        """Ask it to end, then make sure."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send a command and wait for its answer.

        Raises BenchmarkError with the end of its log if the process ends instead.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._ended()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._ended()
        answered: dict[str, Any] = msgspec.json.decode(line)
        return answered

    def _ended(self) -> None:
        status = self._process.wait()
        raise BenchmarkError(
            f"the engine `{self.key}` ended with status {status}; all it said: {self._log}",
            tail(self._log),
        )


class Engines:
    """All engine processes of a condition; none is left on leaving, whatever happened."""

    def __init__(self, setups: Mapping[str, Setup], logs: Path) -> None:
        self._setups = setups
        self._logs = logs
        self._running: dict[str, EngineProcess] = {}

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            for key, setup in self._setups.items():
                engine = EngineProcess(key, setup, self._logs / f"engine-{key}.log")
                self._running[key] = engine
            for engine in self._running.values():
                engine.wait_ready()
        except BaseException:
            self._stop(self._running.values())
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop(self._running.values())

    def __getitem__(self, key: str) -> EngineProcess:
        return self._running[key]

    @staticmethod
    def _stop(engines: Iterable[EngineProcess]) -> None:
        for engine in engines:
            engine.stop()
