"""Engine processes, and the tasks that each of them does."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .runs import Run
from .setup import ROOT, Setup, environment, interpreter
from .worker import Task


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
    """Start an engine process and let it do its tasks; RuntimeError if it ends before."""
    engine = group.setup.engine
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [interpreter(engine), "-m", "benchmarks.judge.real.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            env={**os.environ, **environment(engine)},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def answer(message: object) -> bytes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(message) + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the engine process ended; see {log}")
            return line

        try:
            answer(group.setup)
            runs = [
                run
                for task in group.tasks
                for run in msgspec.json.decode(answer(task), type=list[Run])
            ]
            process.stdin.close()
        except BaseException:
            process.terminate()
            raise
    return runs
