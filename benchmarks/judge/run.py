"""Runs an arm in a cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from .arms import LADDER, ladder_graphs, parse_arm
from .cells import TPOT, Cell
from .clock import Noise
from .device import Device, Work, device
from .engines import Engine, EngineKind
from .rows import COLD, WARM, Row, by_size, curve_of, summary
from .start import start
from .traffic import Job, jobs, serve

NOISE_SEED = 1000
"""Added to the traffic's seed."""


def seeds_of(text: str) -> range:
    """Return the seeds from the first to the last, ``1-28``, or the only one."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def noise_of(cell: Cell, seed: int) -> Noise:
    """Return what disturbs the steps of a cell."""
    return Noise(cell.noise, NOISE_SEED + seed, cell.neighbour)


class Engines:
    """The engines of this process, each started when it is first wanted."""

    def __init__(self) -> None:
        self._engines: dict[EngineKind, Engine] = {}
        self.last_key: object = None
        self.last: _Answered = _Answered([], 0, [], [])

    def of(self, cell: Cell) -> Engine:
        """The engine that a cell runs on."""
        kind = cell.kind
        if kind not in self._engines:
            self._engines[kind] = start(kind)
        return self._engines[kind]

    def close(self) -> None:
        """Shut all of them down."""
        for engine in self._engines.values():
            engine.close()


class _Answered(NamedTuple):
    """A load answered by an arm.

    Attributes:
        steps: what each step ran.
        sent: steps until the last request was sent.
        per_token, first_token: see `traffic.Served`.
        counters: the plugin's, before and after.
    """

    steps: list[Work]
    sent: int
    per_token: list[float]
    first_token: list[float]
    counters: tuple[dict[str, Any], dict[str, Any]] = ({}, {})


def runs(engines: Engines, cell: Cell, name: str, seed: int, *, ran: str = "") -> Iterator[Row]:
    """Let an arm answer a cell's load: once, or cold and warm.

    The steps of an arm that learns nothing do not depend on the clock, unless requests arrive in
    time. They are run once for all devices, and priced on each.

    Args:
        engines: of this process.
        cell: what is asked.
        name: of the arm.
        seed: of the traffic, the noise and the policy.
        ran: the arm that `name` stands for, such as a table; empty: `name`.
    """
    arm = replace(parse_arm(ran or name), seed=seed)
    if arm.name == LADDER:
        arm = replace(arm, graphs=ladder_graphs(cell.kmax))
    if cell.second_source and arm.learns:
        arm = replace(arm, second_source=True)
    known = not arm.policy and not cell.traffic.timed
    engine = engines.of(cell)
    on = engine.priced(arm, device(cell.device))
    same = (cell.traffic, cell.kind, cell.kv_tokens, arm.name, seed)
    if known and same == engines.last_key:
        yield _row(cell, name, seed, "", ran, engines.last, on)
        return
    made = jobs(cell.traffic, cell.method, cell.kmax, seed)
    engine.use(arm, device(cell.device), cell.kv_tokens)
    for part in (COLD, WARM) if arm.learns else ("",):
        answered = _answer(engine, cell, made, seed)
        if known:
            engines.last_key, engines.last = same, answered
        yield _row(cell, name, seed, part, ran, answered, on)


def _answer(engine: Engine, cell: Cell, made: list[Job], seed: int) -> _Answered:
    recorder = engine.recorder
    recorder.noise = noise_of(cell, seed)
    before = engine.status()
    served = serve(engine, cell.traffic, made)
    steps = recorder.pop_steps()
    counters = before, engine.status()
    return _Answered(steps, served.sent, served.per_token, served.first_token, counters)


def _row(
    cell: Cell,
    name: str,
    seed: int,
    part: str,
    ran: str,
    answered: _Answered,
    on: Device,
) -> Row:
    charge, noise = on.charge(cell.method), noise_of(cell, seed)
    steps, sent = answered.steps, answered.sent
    seconds = [noise.seconds(charge.seconds(work)) for work in steps]
    requests = max(sum(work.requests for work in steps), 1)
    before, after = answered.counters
    arrived = cell.measure == TPOT
    return Row(
        cell=cell.name,
        arm=name,
        seed=seed,
        part=part,
        runs=ran or name,
        steps=len(steps),
        tokens=sum(work.emitted for work in steps),
        seconds=round(sum(seconds), 6),
        loaded=(sum(work.emitted for work in steps[:sent]), round(sum(seconds[:sent]), 6)),
        curve=curve_of(steps, seconds),
        sizes=by_size(steps, seconds),
        verified=round(sum(work.tokens - work.requests for work in steps) / requests, 4),
        modes=growth(before, after, "steps_by_mode") if part else {},
        kinds=growth(before, after, "steps_by_kind") if part else {},
        faults=sum(growth(before, after, "fail_opens").values()),
        per_token=summary(answered.per_token) if arrived else None,
        first_token=summary(answered.first_token) if arrived else None,
    )


def growth(before: dict[str, Any], after: dict[str, Any], name: str) -> dict[str, int]:
    """Counters of our plugin that have grown, and by how much."""
    counted = before.get(name, {})
    grown = {key: count - counted.get(key, 0) for key, count in after.get(name, {}).items()}
    return {key: count for key, count in grown.items() if count}
