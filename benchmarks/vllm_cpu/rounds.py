"""The order of the cells: all arms follow one another at a concurrency, in rotated order.

A machine that gets slower or faster then meets all of them alike. Cells that are on file are
skipped, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from .arms import SCHEDULE, Arm
from .cells import Cell, CellFile, Condition
from .engine import Load
from .engines import Engines
from .machine_lock import MachineLock
from .schedule import Table, best_k, static_table, table_of

WARM_UP = -1
"""Repeat number of cells that aren't kept."""
WARM_UP_SECONDS = 3.0
ATTEMPTS = 3
"""At a cell that others disturb; the last one is kept, and said to be disturbed."""
WARM_UP_SEED = 90
REPEAT_SEED = 100
COUNTED = ("steps_by_mode", "requests_by_k", "fail_opens")
"""Counters of the plugin that a cell keeps the growth of."""


class Rounds:
    """Measures the arms under one condition."""

    def __init__(
        self,
        engines: Engines,
        arms: Sequence[Arm],
        condition: Condition,
        file: CellFile,
        lock: MachineLock,
        said: Callable[[str], None],
        beside: float = 0.0,
    ) -> None:
        self._engines = engines
        self._arms = arms
        self._condition = condition
        self._file = file
        self._lock = lock
        self._said = said
        self._beside = beside

    def warm_up(self, concurrencies: Sequence[int], learn_seconds: float) -> None:
        """A discarded cell for every engine; then ours learns for so long, at each concurrency."""
        one_of_each = {arm.engine: arm for arm in reversed(self._arms)}
        ours = [arm for arm in self._arms if arm.learns]
        for place, concurrency in enumerate(concurrencies):
            seed = WARM_UP_SEED + place
            expected = WARM_UP_SECONDS * len(one_of_each) + learn_seconds * len(ours)
            with self._lock.exclusive(expected):
                for arm in one_of_each.values():
                    self._cell(arm, concurrency, seed, WARM_UP_SECONDS)
                for arm in ours:
                    self._cell(arm, concurrency, seed, learn_seconds)
            self._said(f"warmed up at concurrency {concurrency}")

    def measure(self, concurrencies: Sequence[int], repeats: int, seconds: float) -> None:
        """All cells that aren't on file, about so many seconds each."""
        for repeat in range(repeats):
            for place, concurrency in enumerate(concurrencies):
                missing = [
                    arm
                    for arm in rotated(self._arms, repeat + place, first=repeat == 0)
                    if not self._file.has(arm.name, concurrency, repeat)
                ]
                if missing:
                    with self._lock.exclusive(1.3 * seconds * len(missing)):
                        self._round(missing, concurrency, repeat, place, seconds)

    def _round(
        self, arms: Sequence[Arm], concurrency: int, repeat: int, place: int, seconds: float
    ) -> None:
        seed = REPEAT_SEED + 20 * repeat + place
        row = []
        for arm in arms:
            for _ in range(ATTEMPTS):
                cell = self._cell(arm, concurrency, seed, seconds, repeat)
                if not cell.disturbed:
                    break
                self._said(f"{arm.name}: others used {cell.others_cpu:.2f} cores; once more")
            self._file.add(cell)
            row.append(cell)
        rates = ", ".join(f"{cell.arm} {cell.tokens_per_second:.1f}" for cell in row)
        self._said(f"repeat {repeat + 1}, concurrency {concurrency}, tokens/s: {rates}")

    def _cell(
        self, arm: Arm, concurrency: int, seed: int, seconds: float, repeat: int = WARM_UP
    ) -> Cell:
        engine, condition = self._engines[arm.engine], self._condition
        load = Load(
            workload=condition.workload,
            temperature=condition.temperature,
            concurrency=concurrency,
            seed=seed,
            seconds=seconds,
            whole_cycles=repeat != WARM_UP,
        )
        table, plugin = self._table(arm), None
        if arm.policy is None:
            counted = engine.serve(load, table=table)
        else:
            options = {} if arm.k is None else {"k": arm.k}
            policy = {"name": arm.policy, "options": options, "fresh": arm.fresh}
            before = engine.status()
            counted = engine.serve(load, policy=policy)
            plugin = growth(before, engine.status())
        named = {"arm": arm.name, "concurrency": concurrency, "repeat": repeat}
        about = {"beside": self._beside, "table": table, "plugin": plugin}
        return msgspec.convert({**named, **counted, **about}, Cell)

    def _table(self, arm: Arm) -> Table | None:
        if arm.name == SCHEDULE:
            # Later repeats add cells one by one, which no operator would tune on.
            tuning = [cell for cell in self._file.cells if cell.repeat == 0]
            return table_of(best_k(tuning))
        return static_table(arm.k) if arm.engine == "vllm" and arm.k is not None else None


def rotated(arms: Sequence[Arm], by: int, first: bool) -> list[Arm]:
    """Begin with another arm each time; the tuned schedule is last while it has no results."""
    by %= len(arms)
    order = [*arms[by:], *arms[:by]]
    return sorted(order, key=lambda arm: arm.name == SCHEDULE) if first else order


def growth(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """How much the plugin's counters have grown; zeros are left out."""
    return {
        name: {
            key: count - before[name].get(key, 0)
            for key, count in after[name].items()
            if count > before[name].get(key, 0)
        }
        for name in COUNTED
    }
