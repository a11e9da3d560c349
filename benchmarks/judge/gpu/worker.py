"""The program of an engine process: vLLM's arguments, then commands; answers come back.

A command names what to do, and its arguments.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ..processes import answer_lines
from ..real.traffic import Load
from .engine import Engine, own_time, serve
from .greedy import answers, gaps
from .shapes import Setting, time_settings

COMMANDS: dict[str, Callable[..., Any]] = {
    "answers": answers,
    "control": Engine.control,
    "gaps": gaps,
    "own_time": own_time,
    "serve": serve,
    "settings": time_settings,
    "table": Engine.use_table,
}
TYPES = {"load": Load, "settings": list[Setting]}
"""Arguments that are more than JSON."""


def answer(engine: Engine, command: dict[str, Any]) -> dict[str, Any]:
    """Do what a command asks."""
    try:
        named: dict[str, Any] = {
            name: msgspec.convert(value, TYPES.get(name, Any))
            for name, value in command["named"].items()
        }
        return {"result": COMMANDS[command["do"]](engine, **named)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def main(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """Start the engine, then do one command after the other."""
    engine = Engine(msgspec.json.decode(next(lines)))
    yield {"result": engine.facts()}
    for line in lines:
        yield answer(engine, msgspec.json.decode(line))
    engine.close()


if __name__ == "__main__":
    answer_lines(main)
