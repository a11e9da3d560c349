"""The program of an engine process: a JSON command a line, a JSON answer a line.

    python -m benchmarks.gpu.engine_process

A command names what to do, the key of an engine, and arguments. On a GPU a process has one engine;
on a CPU, to try the code, one process has all. It ends when its input is closed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from .closed_loop import own_time, serve
from .engine import Engine, Setup
from .greedy import answers, gaps
from .load import Load
from .shapes import Setting, time_prompts, time_settings

COMMANDS: dict[str, Callable[..., Any]] = {
    "facts": Engine.facts,
    "control": Engine.control,
    "rpc": Engine.rpc,
    "serve": serve,
    "own_time": own_time,
    "answers": answers,
    "gaps": gaps,
    "settings": time_settings,
    "prompts": time_prompts,
}
TYPES = {"load": Load, "settings": list[Setting]}
"""Arguments that are more than JSON."""


def answer(engines: dict[str, Engine], command: dict[str, Any]) -> Any:
    """Do what a command asks. Its arguments are positional, but for those named in `TYPES`."""
    key = command["key"]
    if command["do"] == "start":
        engines[key] = Engine(msgspec.convert(command["setup"], Setup))
        return engines[key].facts()
    named = {
        name: msgspec.convert(command["named"][name], TYPES.get(name, Any))
        for name in command["named"]
    }
    return COMMANDS[command["do"]](engines[key], *command["arguments"], **named)


def main() -> None:
    """Serve commands."""
    answers_to = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what vLLM prints goes to the log
    engines: dict[str, Engine] = {}
    for line in sys.stdin.buffer:
        try:
            found = {"result": answer(engines, msgspec.json.decode(line))}
        except Exception as error:
            import traceback

            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {error}"}
        answers_to.write(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main()
