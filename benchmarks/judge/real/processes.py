"""Engine processes, and the tasks that each of them does."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..processes import Process
from ..setup import Setup, environment, interpreter
from .runs import Run
from .worker import Task

WORKER = "benchmarks.judge.real.worker"


@dataclass
class Group:
    """Tasks of one engine process."""

    setup: Setup
    tasks: list[Task]


def work_off(wanted: Sequence[Group], out: Path, workers: int = 1) -> list[Run]:
    """Run the groups, so many at a time; return all runs.

    Raises ProcessError if an engine process ended before its work was done.
    """
    logs = [out / f"engine-{number}.log" for number in range(len(wanted))]
    with ThreadPoolExecutor(workers) as pool:
        return [run for runs in pool.map(run_group, wanted, logs) for run in runs]


def run_group(group: Group, log: Path) -> list[Run]:
    """Start an engine process and let it do its tasks; ProcessError if it ends before."""
    engine = group.setup.engine
    process = Process(WORKER, log, environment(engine), interpreter(engine))
    try:
        process.ask(group.setup)
        return [
            run
            for task in group.tasks
            for run in msgspec.json.decode(process.ask(task), type=list[Run])
        ]
    finally:
        process.close()
