"""The command line: engine processes, progress, time left.

    python -m benchmarks.virtual_device            # an hour and a half on two cores
    python -m benchmarks.virtual_device --quick    # some minutes, two drafters at three loads

in the environment that vLLM is installed in. Every run is kept in OUT/runs.jsonl; the command goes
on where it was stopped. `--device` takes a profile of ``adaptive-spec profile``; `--results` puts
the cells in the place of those of that file, which the tables of docs/measured.md are made from
(`scripts/generated_docs.py`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from adaptive_spec.errors import AdaptiveSpecError, ConfigError, DataError
from adaptive_spec.sim.data_folder import data_folder
from benchmarks.bench_pair.build import build

from .cells import cells, publish, tables
from benchmarks.judge.device import DEVICES, Device, device
from .page import terminal_table, write_picture
from .runs import Run, RunFile, RunKey
from .setup import ROOT, environment, interpreter
from .sweep import QUICK, SECTIONS, Group, Section, groups
from .traffic import traced
from .worker import Task

MODELS = ("target", "draft", "draft_poor", "eagle", "eagle3", "mtp")
ARRIVALS_TRACE = "azure_llm_2023_conv.csv.gz"
ARRIVALS, ARRIVALS_PER_SECOND = 1024, 80.0
"""Requests of a trace of arrivals; without speculation an H100 with an 8B model answers some 110
per second."""
START_SECONDS = 30.0
"""Expected time until an engine process is ready, before the first one has told."""


class Progress:
    """How much is done, and the time left."""

    def __init__(self, wanted: Sequence[Group]) -> None:
        self._began = time.monotonic()
        self._weight = sum(weight(group) for group in wanted)
        self._done = 0.0
        self._lock = threading.Lock()

    def done(self, part: float, what: str) -> None:
        """A part of the work has been done."""
        with self._lock:
            self._done += part
            spent = time.monotonic() - self._began
            left = spent * max(self._weight / self._done - 1.0, 0.0)
            share = 100 * self._done / self._weight
            print(f"{share:5.1f} %  {left / 60:5.1f} min left  {what}", flush=True)


def weight(group: Group) -> float:
    """Expected seconds of a group."""
    return START_SECONDS + sum(map(task_weight, group.tasks))


def task_weight(task: Task) -> float:
    """Expected seconds of a task: a step takes about 6 ms and .5 ms for each of its requests."""
    load = task.load
    seconds = 0.0
    for clients, requests in load.pieces or ((16, len(load.arrivals)),):
        steps = requests * load.tokens / clients / 2.3
        more = max(300.0, steps) if task.warm else 0.0
        seconds += (steps + more) * (0.006 + 0.0005 * clients)
    return seconds


def work_off(wanted: list[Group], file: RunFile, out: Path, workers: int) -> list[str]:
    """Run the groups, so many at a time; the failures."""
    progress, lock = Progress(wanted), threading.Lock()
    queue, failures = list(wanted), list[str]()

    def work() -> None:
        while True:
            with lock:
                if not queue:
                    return
                group, number = queue.pop(0), len(wanted) - len(queue)
            try:
                run_group(group, file, out / f"engine-{number}.log", progress, lock)
            except (OSError, RuntimeError, msgspec.DecodeError) as error:
                with lock:
                    failures.append(f"{group.setup.engine} {group.setup.method}: {error}")

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def run_group(
    group: Group, file: RunFile, log: Path, progress: Progress, lock: threading.Lock
) -> None:
    """Start an engine process and let it do its tasks.

    Raises RuntimeError if it ends before.
    """
    engine = group.setup.engine
    command = [interpreter(engine), "-m", "benchmarks.virtual_device.worker"]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
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
            process.stdin.write(msgspec.json.encode(message) + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the engine process ended; see {log}")
            return line

        try:
            answer(group.setup)
            progress.done(START_SECONDS, f"{group.setup.method}: engine ready")
            for task in group.tasks:
                for run in msgspec.json.decode(answer(task), type=list[Run]):
                    with lock:
                        file.add(run)
                key = task.key
                what = f"{key.method} {key.arm} {key.device} {key.load} {key.kind}"
                progress.done(task_weight(task), what)
            process.stdin.close()
        except BaseException:
            process.terminate()
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, then print a table."""
    given = _parser().parse_args(arguments)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    try:
        own = {each.name: each for each in map(device, given.device or [])}
        sections = _sections(given, own)
        file = RunFile(out / "runs.jsonl")
        models = str(given.models or out / "models")
        build(Path(models), MODELS)
        devices = DEVICES | own
        failures = _run(sections, file, models, devices, given)
        found = cells(sections, {run.key: run for run in file.read()}, devices)
    except AdaptiveSpecError as error:
        print(f"virtual_device: {error}", file=sys.stderr)
        return 1
    for failure in failures:
        print(f"virtual_device: {failure}", file=sys.stderr)
    print(terminal_table(found))
    if given.results is not None:
        publish(given.results, found)
        write_picture()
    return 1 if failures else 0


def _run(
    sections: list[Section],
    file: RunFile,
    models: str,
    devices: dict[str, Device],
    given: argparse.Namespace,
) -> list[str]:
    """Run what is missing; vLLM's tables are tuned on what has been run before."""
    failures: list[str] = []
    for _ in range(2):
        runs: dict[RunKey, Run] = {run.key: run for run in file.read()}
        wanted = groups(sections, models, file.keys, tables(sections, runs, devices), devices)
        if not given.page_only and wanted and not failures:
            failures = work_off(wanted, file, given.out, given.workers)
    return failures


def _sections(given: argparse.Namespace, own: dict[str, Device]) -> list[Section]:
    if given.quick:
        chosen = [QUICK]
    else:
        names = given.sections.split(",") if given.sections else list(SECTIONS)
        unknown = [name for name in names if name not in SECTIONS]
        if unknown:
            raise ConfigError(f"no section {unknown[0]!r}; there are: {', '.join(SECTIONS)}")
        chosen = [SECTIONS[name] for name in names]
        chosen = [_with_arrivals(s, given.arrivals) if s.name == "arrivals" else s for s in chosen]
    if own:
        chosen = [replace(section, devices=tuple(own)) for section in chosen]
    return chosen


def _with_arrivals(section: Section, given: Path | None) -> Section:
    """The section with the trace given or the public one; as it is where there is no data."""
    try:
        trace = given or data_folder() / "load" / ARRIVALS_TRACE
    except DataError as error:
        why = f"no section {section.name} without --arrivals: {error}"
        print(f"virtual_device: {why}", file=sys.stderr)
        return section
    return replace(section, others=(traced(trace, ARRIVALS, ARRIVALS_PER_SECOND),))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.virtual_device", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="two drafters at three loads")
    parser.add_argument("--sections", help=f"of {','.join(SECTIONS)}; default: all")
    parser.add_argument("--device", action="append", help="name or hardware profile; repeatable")
    parser.add_argument("--arrivals", type=Path, help="trace of the section `arrivals`")
    parser.add_argument("--workers", type=int, default=2, help="engine processes at a time")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "virtual_device")
    parser.add_argument("--models", type=Path, help="folder of the bench models")
    parser.add_argument("--results", type=Path, help="put the cells into this file")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    return parser
