"""Scripted engines of this process, and requests for them."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.judge.device import DEVICES, Work
from benchmarks.judge.engines import EngineKind
from benchmarks.judge.records import lines

DEVICE = DEVICES["h100-8b"]
Made = Callable[..., Any]
"""Gives an idle engine by what it is."""


@contextmanager
def engines(
    build: Callable[[EngineKind], Any], variables: Mapping[str, str], **fixed: Any
) -> Iterator[Made]:
    """Engines, in their environment for them."""
    before, path = dict(os.environ), list(sys.path)
    os.environ.update(variables)
    made: dict[EngineKind, Any] = {}

    def engine_of(**kind: Any) -> Any:
        wanted = EngineKind(**fixed, **kind)
        if wanted not in made:
            made[wanted] = build(wanted)
        return made[wanted]

    yield engine_of
    os.environ.clear()
    os.environ.update(before)
    sys.path[:] = path


def serve(
    engine: Any, requests: int = 4, tokens: int = 60, prompt: int = 40, records: str = "hazard:0.8"
) -> list[Work]:
    """Let so many requests be answered at once; return the steps."""
    played = lines(records, engine.kind.method, engine.kind.kmax)
    for number in range(requests):
        engine.submit(f"q{number}", prompt, tokens, played, 101 * number)
    left = requests
    while left:
        left -= sum(each.finished for each in engine.step())
    engine.drain()
    return engine.recorder.pop_steps()
