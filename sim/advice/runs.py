"""Simulated runs behind an advice: each (world, set-up, load) once, in parallel processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import as_completed
from typing import Self

from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.advice.worlds import Outcome, World
from adaptive_spec.sim.sweep.process_pool import WorkerPool

Run = tuple[str, SetUp, int]
"""Name of a world, set-up and clients."""

_HELD: dict[str, World] = {}
"""The worlds of a worker process."""


class Runs:
    """Outcomes by world, set-up and load; a context manager, which holds the processes.

    Args:
        worlds: by name.
        jobs: processes; 1: none besides this one; None: one per CPU.
        progress: called with the runs done and the runs asked for or expected so far.
    """

    def __init__(
        self,
        worlds: dict[str, World],
        *,
        jobs: int | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._worlds = worlds
        self._progress = progress
        self._outcomes: dict[tuple[str, str, int], Outcome] = {}
        self._asked = 0
        self.expected = 0
        """Runs that will be asked for in all, as far as it is known."""
        jobs = (os.cpu_count() or 1) if jobs is None else jobs
        self._pool = WorkerPool(jobs, hold, worlds) if jobs > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.__exit__(*error)

    def make(self, wanted: Iterable[Run]) -> None:
        """Make these runs, in any order; those made before are skipped."""
        missing = {(run[0], run[1].name, run[2]): run for run in wanted}
        missing = {key: run for key, run in missing.items() if key not in self._outcomes}
        self._asked += len(missing)
        if self._pool is None:
            for key, (world, set_up, clients) in missing.items():
                self._keep(key, self._worlds[world].run(set_up, clients))
            return
        # Large loads take longest: they go first, so that no process ends alone.
        order = sorted(missing.items(), key=lambda item: -item[1][2])
        keys = {self._pool.submit(execute, *run): key for key, run in order}
        for future in as_completed(keys):
            self._keep(keys[future], future.result())

    def _keep(self, key: tuple[str, str, int], outcome: Outcome) -> None:
        self._outcomes[key] = outcome
        self._progress(len(self._outcomes), max(self.expected, self._asked))

    def outcome(self, world: str, set_up: str, clients: int) -> Outcome:
        """Return the outcome of a run that was made, by the name of its set-up."""
        return self._outcomes[world, set_up, clients]

    def speed(
        self, world: str, set_up: str, loads: Sequence[int], shares: Sequence[float]
    ) -> float:
        """Return the tokens per second over a mix of loads, each by its share of the time."""
        speeds = [self.outcome(world, set_up, clients).tokens_per_second for clients in loads]
        return sum(share * speed for share, speed in zip(shares, speeds, strict=True))


def hold(worlds: dict[str, World]) -> None:
    """Keep the worlds of a worker process."""
    _HELD.update(worlds)


def execute(world: str, set_up: SetUp, clients: int) -> Outcome:
    """Run a set-up in a worker process."""
    return _HELD[world].run(set_up, clients)
