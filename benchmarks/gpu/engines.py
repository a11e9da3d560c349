"""Which engines there are, and their processes.

Several engines share the GPU: each has its memory, and only the one at work runs. So arms are
measured in turn, minutes apart at most, on the same card.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from .engine import Setup

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 20.0
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_WAIT_POLICY": "passive",
}


class EngineError(RuntimeError):
    """An engine process failed; the message ends with its log."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What engines are made for.

    Attributes:
        models: folder of the models.
        gpu: CUDA, with captured graphs; else a CPU, eagerly.
        max_num_seqs: most requests in a batch.
        kv_gigabytes: KV cache of each engine.
        memory_share: of the GPU that must be free when an engine starts.
        kmax: number of draft tokens configured.
        draft_sampling: vLLM's `draft_sample_method`.
        compilation: vLLM's `compilation_config`, for all engines.
    """

    models: str
    gpu: bool
    max_num_seqs: int
    kv_gigabytes: float
    memory_share: float
    kmax: int
    draft_sampling: str = "greedy"
    compilation: dict[str, Any] = {}


NONE, VLLM, OURS = "none", "vllm", "ours"


def setup_for(key: str, machine: Machine, adaptive: Mapping[str, Any] | None = None) -> Setup:
    """The engine of a key: METHOD-KIND, or `none`.

    KIND is `vllm` (K by a table, graphs for the same rungs as ours), `ours`, or `kN` (vLLM with
    num_speculative_tokens = N and nothing else). METHOD is `eagle` or `draft_model`.
    """
    arguments: dict[str, Any] = {
        "model": f"{machine.models}/target",
        "max_model_len": 1024,
        "max_num_seqs": machine.max_num_seqs,
        "enable_prefix_caching": False,
        "seed": 0,
    }
    compilation = dict(machine.compilation)
    if machine.gpu:
        arguments |= {
            "dtype": "bfloat16",
            "gpu_memory_utilization": machine.memory_share,
            "kv_cache_memory_bytes": int(machine.kv_gigabytes * 2**30),
            "attention_backend": "FLASH_ATTN",
            "cudagraph_metrics": True,
        }
    else:
        arguments |= {"dtype": "float32", "enforce_eager": True}
    if key == NONE:
        arguments["compilation_config"] = compilation
        return Setup(arguments=arguments, cpu=not machine.gpu)
    method, _, kind = key.rpartition("-")
    speculation: dict[str, Any] = {
        "method": method,
        "model": f"{machine.models}/{'eagle' if method == 'eagle' else 'draft'}",
        "num_speculative_tokens": int(kind[1:]) if kind.startswith("k") else machine.kmax,
        "draft_sample_method": machine.draft_sampling,
    }
    if kind == VLLM and machine.gpu:
        from adaptive_spec.adapters.vllm.graph_ladder import capture_sizes, rungs, schedule_for

        values = rungs(machine.kmax, (), most=machine.max_num_seqs)
        largest = min(512, 2 * machine.max_num_seqs * (1 + machine.kmax))
        speculation["num_speculative_tokens_per_batch_size"] = schedule_for(
            values, machine.max_num_seqs
        )
        compilation["cudagraph_capture_sizes"] = capture_sizes(
            values, machine.max_num_seqs, largest
        )
    arguments["speculative_config"] = speculation
    arguments["compilation_config"] = compilation
    return Setup(
        arguments=arguments,
        adaptive=dict(adaptive or {}) if kind == OURS else None,
        table=kind == VLLM and machine.gpu,
        cpu=not machine.gpu,
    )


class EngineProcess:
    """One engine process. Commands are answered one at a time."""

    def __init__(self, key: str, setup: Setup, log: Path) -> None:
        self.key = key
        self._log = log
        # A configuration for other servers must not switch our plugin on in every engine.
        inherited = {k: v for k, v in os.environ.items() if k != "ADAPTIVE_SPEC_CONFIG"}
        path = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *("-m", "benchmarks.gpu.engine_process"),
                    msgspec.json.encode(setup).decode(),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**inherited, **ENVIRONMENT, "PYTHONPATH": path},
            )

    def wait_ready(self) -> None:
        """Until the engine is built. Raises EngineError if it fails."""
        self._answer()

    def ask(self, do: str, **arguments: Any) -> Any:
        """Send a command and wait for its answer. Raises EngineError if there is none."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            line = msgspec.json.encode({"do": do, **arguments}) + b"\n"
            self._process.stdin.write(line)
            self._process.stdin.flush()
        return self._answer().get("result")

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

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise EngineError(f"engine {self.key} ended with status {status}:\n{self._tail()}")
        found: dict[str, Any] = msgspec.json.decode(line)
        if "error" in found:
            raise EngineError(f"engine {self.key}: {found['error']}")
        return found

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-60:])


def start(setups: Mapping[str, Setup], logs: Path) -> dict[str, EngineProcess | EngineError]:
    """Start engines at once and wait for all; an engine that fails is its error."""
    logs.mkdir(parents=True, exist_ok=True)
    made = {}
    for key, setup in setups.items():
        made[key] = EngineProcess(key, setup, logs / f"{key}.log")
        time.sleep(2.0)  # vLLM checks free memory at start: not all in the same moment
    ready: dict[str, EngineProcess | EngineError] = {}
    for key, engine in made.items():
        try:
            engine.wait_ready()
            ready[key] = engine
        except EngineError as error:
            ready[key] = error
    return ready
