"""Entry point: for each condition engines, warm-up, rounds and results."""

from __future__ import annotations

import datetime
import importlib.util
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NoReturn

from demo.arms import model_threads
from demo.report import environment

from .arms import Arm
from .cells import CellFile, Condition
from .engine import OUTPUT_TOKENS
from .engines import Engines, setup_for
from .errors import BenchmarkError
from .machine_lock import MachineLock
from .options import DRAFTS, Options, parse
from .ratios import rows
from .recording import record
from .results import save, text
from .rounds import Rounds

NEEDED = ("vllm", "adaptive_spec", "httpx", "rich")


def run(options: Options, command: Sequence[str]) -> None:
    """All of it. Raises BenchmarkError if something essential fails."""
    from benchmarks.bench_pair.build import build

    began = time.monotonic()

    def said(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", flush=True)

    said("building the models, unless they are there")
    build(options.models, ("target_big", *(DRAFTS[c.draft] for c in options.conditions)))
    lock = MachineLock(options.lock, options.lock_seconds, said)
    try:
        if options.record is not None:
            for condition in options.conditions:
                folder = options.record / condition.name
                record(folder, condition, options, lock, said)
                said(f"traces are under {folder}")
        else:
            for _, conditions in groupby(options.conditions, lambda c: (c.draft, c.draft_sampling)):
                measure(options, list(conditions), lock, said, command)
    finally:
        lock.release()
    if options.lock is not None:
        said(f"held {options.lock} for {lock.held_seconds:.0f} s")


def measure(
    options: Options,
    conditions: Sequence[Condition],
    lock: MachineLock,
    said: Callable[[str], None],
    command: Sequence[str],
) -> None:
    """Measure conditions that share engines: all cells, then table and JSON file of each."""
    files = [CellFile(options.output / f"{each.name}.jsonl", each) for each in conditions]
    missing = {arm.engine for file in files for arm in unfinished(options, file)}
    draft, sampling = DRAFTS[conditions[0].draft], conditions[0].draft_sampling
    setups = {key: setup_for(key, options.models, draft, sampling) for key in sorted(missing)}
    if setups:
        said(f"{conditions[0].title}: starting {len(setups)} engines")
    with Engines(setups, options.output / "logs") as engines:
        for condition, file in zip(conditions, files, strict=True):
            fill(options, condition, file, engines, lock, said)
            table = rows(options.arms, options.concurrencies, file.cells)
            print(f"\n{text(condition, table, file.cells)}", flush=True)
            about = {
                "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "command": " ".join(command),
                "environment": environment(),
                "model_threads": model_threads(),
                "output_tokens_of_a_request": OUTPUT_TOKENS,
                "seconds_per_cell": options.seconds_per_cell,
                "learn_seconds": options.learn_seconds,
            }
            folder = options.results or options.output
            said(str(save(folder, condition, table, file.cells, about)))


def unfinished(options: Options, file: CellFile) -> list[Arm]:
    """Arms of which cells are not on file."""
    return [
        arm
        for arm in options.arms
        if any(
            not file.has(arm.name, concurrency, repeat)
            for concurrency in options.concurrencies
            for repeat in range(options.repeats)
        )
    ]


def fill(
    options: Options,
    condition: Condition,
    file: CellFile,
    engines: Engines,
    lock: MachineLock,
    said: Callable[[str], None],
) -> None:
    """Measure what isn't on file."""
    arms = unfinished(options, file)
    if not arms:
        return
    said(condition.title)
    rounds = Rounds(engines, arms, condition, file, lock, said, options.beside)
    rounds.warm_up(options.concurrencies, options.learn_seconds)
    rounds.measure(options.concurrencies, options.repeats, options.seconds_per_cell)
    lock.release()


def main() -> int:
    """Parse, run, say in one line what went wrong if something did."""
    options = parse()
    signal.signal(signal.SIGTERM, interrupted)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    try:
        if missing:
            raise BenchmarkError(
                f"{', '.join(missing)} not installed for {sys.executable}: use the environment "
                "that `make demo` sets up"
            )
        run(options, ["python", *sys.argv])
    except BenchmarkError as error:
        if error.details:
            print(error.details, file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


def interrupted(number: int, frame: object) -> NoReturn:
    """Let a signal end the run in order, so that engines are stopped."""
    raise KeyboardInterrupt
