"""Runs an arm in a cell."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .arms import parse_arm
from .cells import Cell
from .device import device
from .rows import COLD, RESTARTED, WARM, Row, by_size, curve_of, summary
from .scripted_vllm import EngineKind, ScriptedVllm
from .traffic import Job, jobs, serve

NOISE_SEED = 1000
"""Added to the traffic's seed."""


class Engines:
    """The engines of this process, each started when it is first wanted."""

    def __init__(self) -> None:
        self._engines: dict[EngineKind, ScriptedVllm] = {}

    def of(self, cell: Cell) -> ScriptedVllm:
        """The engine that a cell runs on."""
        kind = cell.kind
        if kind not in self._engines:
            self._engines[kind] = ScriptedVllm(kind)
        return self._engines[kind]

    def close(self) -> None:
        """Shut all of them down."""
        for engine in self._engines.values():
            engine.close()


def runs(
    engines: Engines, cell: Cell, name: str, seed: int, *, ran: str = "", restart: bool = False
) -> Iterator[Row]:
    """Let an arm answer a cell's load: once, or cold and warm, and restarted if that is wanted.

    Args:
        engines: of this process.
        cell: what is asked.
        name: of the arm.
        seed: of the traffic, the noise and the policy.
        ran: the arm that `name` stands for, such as a table; empty: `name`.
        restart: an arm that learns answers a third time, from its saved state.
    """
    engine = engines.of(cell)
    arm = replace(parse_arm(ran or name), seed=seed)
    made = jobs(cell.traffic, cell.method, cell.kmax, seed)
    with tempfile.TemporaryDirectory() as folder:
        if restart:
            arm = replace(arm, state=folder)
        engine.use(arm, device(cell.device), cell.kv_tokens)
        if not arm.learns:
            yield _one(engine, cell, made, (name, seed, "", ran or name))
            return
        yield _one(engine, cell, made, (name, seed, COLD, ran or name))
        yield _one(engine, cell, made, (name, seed, WARM, ran or name))
        if restart:
            engine.restart()
            yield _one(engine, cell, made, (name, seed, RESTARTED, ran or name))


def _one(
    engine: ScriptedVllm, cell: Cell, made: list[Job], identity: tuple[str, int, str, str]
) -> Row:
    name, seed, part, ran = identity
    recorder = engine.recorder
    recorder.noisy(cell.noise, NOISE_SEED + seed)
    before = engine.status()
    served = serve(engine, cell.traffic, made)
    after = engine.status()
    seconds = recorder.seconds
    steps = recorder.take()
    sent = served.last_sent[0]
    requests = max(sum(work.requests for work in steps), 1)
    return Row(
        cell=cell.name,
        arm=name,
        seed=seed,
        part=part,
        runs=ran,
        steps=len(steps),
        tokens=sum(work.emitted for work in steps),
        seconds=round(sum(seconds), 6),
        loaded=(sum(work.emitted for work in steps[:sent]), round(sum(seconds[:sent]), 6)),
        curve=curve_of(steps, seconds),
        sizes=by_size(steps, seconds),
        verified=round(sum(work.tokens - work.requests for work in steps) / requests, 4),
        modes=_growth(before, after, "steps_by_mode") if part else {},
        kinds=_growth(before, after, "steps_by_kind") if part else {},
        faults=sum(_growth(before, after, "fail_opens").values()),
        per_token=summary(served.per_token),
        first_token=summary(served.first_token),
    )


def _growth(before: dict[str, Any], after: dict[str, Any], name: str) -> dict[str, int]:
    counted = before.get(name, {})
    grown = {key: count - counted.get(key, 0) for key, count in after.get(name, {}).items()}
    return {key: count for key, count in grown.items() if count}
