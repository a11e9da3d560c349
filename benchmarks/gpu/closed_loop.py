"""A closed loop of clients around one engine."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

from .engine import Engine
from .load import Load, Tally

EVERY_STEP = "StepDriver.before_schedule"
"""One of our functions, which is called once in every step."""


class ClosedLoop:
    """Clients who each send a request when their last one is answered."""

    def __init__(self, engine: Engine, load: Load) -> None:
        self._engine, self._load = engine, load
        self._prompts: Iterator[tuple[str, str]] = load.prompts()
        self._spoken: set[str] = set()

    def send(self, tokens: int) -> None:
        """Send the next prompt of the load."""
        kind, text = next(self._prompts)
        self._engine.send(
            kind,
            self._engine.encode(text),
            max_tokens=tokens,
            temperature=self._load.temperature,
        )

    def run(self, tally: Tally, until: float, *, clients: int, whole_cycles: bool = False) -> None:
        """Work until a moment; with `whole_cycles` until each kind has had its share as well."""
        cycle = self._load.cycle
        cycles_at_end: int | None = None
        while cycles_at_end is None or tally.finished // cycle == cycles_at_end:
            for output in self._engine.step():
                name = output.request_id
                tally.count(
                    name.rpartition("-")[0],
                    len(output.outputs[0].token_ids),
                    first=name not in self._spoken,
                    finished=output.finished,
                )
                self._spoken.add(name)
                if output.finished:
                    self._spoken.discard(name)
                    if len(self._engine.live) < clients:
                        self.send(self._load.output_tokens)
            if cycles_at_end is None and time.monotonic() >= until:
                if not whole_cycles:
                    return
                cycles_at_end = tally.finished // cycle


def serve(engine: Engine, load: Load) -> dict[str, Any]:
    """Serve a load and return counts and step times of the measured part."""
    gc.collect()
    gc.freeze()
    loop = ClosedLoop(engine, load)
    for place in range(load.clients):
        loop.send(load.first_length(place))
    loop.run(Tally(), time.monotonic() + load.settle_seconds, clients=load.clients)
    engine.steps.clear()
    tally, began = Tally(), time.monotonic()
    loop.run(tally, began + load.seconds, clients=load.clients, whole_cycles=True)
    ended = time.monotonic()
    engine.abandon()
    return {
        "seconds": round(ended - began, 4),
        "tokens": tally.tokens,
        "tokens_per_s": round(tally.tokens / (ended - began), 2),
        "finished": tally.finished,
        "by_kind": tally.by_kind,
        **engine.steps.summary(began),
    }


def own_time(engine: Engine, load: Load) -> dict[str, Any]:
    """Serve a load and return the microseconds of our functions per step, by clock and by CPU.

    Timing each call takes time as well, so the step times are no measurement of our price.
    """
    engine.rpc("bench_watch", True)
    served = serve(engine, load)
    functions: dict[str, list[float]] = engine.rpc("bench_watch", False)
    steps = max(functions.get(EVERY_STEP, [0.0])[0], 1.0)
    return {
        "own_us": round(1e6 * sum(each[1] for each in functions.values()) / steps, 2),
        "own_cpu_us": round(1e6 * sum(each[2] for each in functions.values()) / steps, 2),
        "steps": int(steps),
        "mean_running": served.get("mean_running", 0.0),
        "functions_us": {
            name: round(1e6 * seconds / steps, 2) for name, (_, seconds, _) in functions.items()
        },
    }
