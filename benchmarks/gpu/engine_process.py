"""The program of an engine process: reads a JSON command a line, answers with a JSON line.

    python -m benchmarks.gpu.engine_process SETUP_JSON

Commands name a method of `GpuEngine` and its arguments. It ends when its input is closed.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from .engine import GpuEngine, Setup
from .load import Load


def answer(engine: GpuEngine, command: dict[str, Any]) -> Any:
    """Do what is asked."""
    match command.pop("do"):
        case "facts":
            return engine.facts()
        case "control":
            return engine.control(command["request"])
        case "table":
            return engine.use_table(command["table"])
        case "serve":
            return engine.serve(msgspec.convert(command["load"], Load))
        case "ramp":
            return engine.ramp(command["clients"], msgspec.convert(command["load"], Load))
        case "answers":
            return engine.answers(msgspec.convert(command["load"], Load), command["count"])
        case unknown:
            raise ValueError(f"unknown command {unknown!r}")


def main() -> None:
    """Build the engine, say that it is ready, serve commands."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what vLLM prints goes to the log
    setup = msgspec.json.decode(sys.argv[1], type=Setup)
    if setup.cpu:
        from benchmarks.bench_pair.vllm_cpu_sampling_fix import apply

        apply()
    engine = GpuEngine(setup)
    answers.write(b'{"ready": true}\n')
    for line in sys.stdin.buffer:
        try:
            found = {"result": answer(engine, msgspec.json.decode(line))}
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        answers.write(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main()
