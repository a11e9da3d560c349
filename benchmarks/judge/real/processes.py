"""Engine processes, and the tasks that each of them does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..processes import Process
from .runs import Run
from .setup import Setup, environment, interpreter
from .worker import Task

WORKER = "benchmarks.judge.real.worker"


@dataclass
class Group:
    """Tasks of one engine process."""

    setup: Setup
    tasks: list[Task]


def work_off(wanted: Sequence[Group], out: Path, workers: int = 1) -> list[Run]:
    """Run the groups, so many at a time; return all runs.

    Raises RuntimeError, with the log, if an engine process ended before its work was done.
    """
    queue, lock = list(enumerate(wanted)), threading.Lock()
    found: list[Run] = []
    failures: list[str] = []

    def work() -> None:
        while True:
            with lock:
                if not queue:
                    return
                number, group = queue.pop(0)
            try:
                runs = run_group(group, out / f"engine-{number}.log")
            except (OSError, RuntimeError, msgspec.DecodeError) as error:
                with lock:
                    failures.append(f"{group.setup.engine} {group.setup.method}: {error}")
                continue
            with lock:
                found.extend(runs)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError("; ".join(failures))
    return found


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
