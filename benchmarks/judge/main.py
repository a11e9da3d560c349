"""The command line: which runs, processes, progress, time left, a table of ratios.

    python -m benchmarks.judge                       # every group, the usual arms
    python -m benchmarks.judge --seeds 3             # with the spread over seeds
    python -m benchmarks.judge --groups uneven --arms none,k1,goodput --seeds 1
    python -m benchmarks.judge --all                 # with the extra cells
    python -m benchmarks.judge --quick               # the gate, a minute
    python -m benchmarks.judge --cells "h100-8b eagle llama:both 16" --arms none,k1,k3,goodput

in the environment that vLLM is installed in; ``--groups "later: SGLang"`` in SGLang's. Cells of the
engine that is not installed wait for the other one. Every run is kept as a line of OUT/rows.jsonl,
and the command goes on where it was stopped. A row is run again where what it depends on has
changed: a fixed K depends on the judge and the simulator's prices, a policy also on the package's
source.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from adaptive_spec.errors import AdaptiveSpecError, ConfigError
from adaptive_spec.sim.sweep.process_pool import run_in_processes

from . import gate
from .arms import GOODPUT, NONE, SGLANG_RULE, TABLE_CELL, TABLE_CONSTANT, TIERS, parse_arm
from .cells import FILE, LATER, Cell, load_cells
from .engines import SGLANG, TITLES, VLLM, Name
from .page import terminal_table
from .processes import ROOT
from .results import figures, publish, published
from .rows import COLD, Row, RowFile
from .start import has_arm, installed
from .tables import tuned_on_cell, tuned_on_constant
from .worker import Batch, Task

STATIC = ("k1", "k2", "k3", "k5", "k7")
K0 = "k0"
"""vLLM's table with K = 0 keeps the drafter in step: it is what the table is tuned on."""
MOST_TUNED = 256
"""Largest number of clients that an operator tunes a table on."""
TABLES = (TABLE_CELL, TABLE_CONSTANT)
ARMS: dict[Name, tuple[str, ...]] = {
    VLLM: (NONE, *STATIC, K0, *TABLES, TIERS, GOODPUT),
    SGLANG: (NONE, *STATIC, SGLANG_RULE, GOODPUT),
}
_JUDGE = {
    VLLM: "scripted_lookup scripted_vllm vllm_steps vllm_worker",
    SGLANG: "scripted_sglang sglang_scheduler",
}
_PRICES = ("sim/acceptance", "sim/drafters", "sim/engine", "sim/hardware")
_PACKAGE = ("adaptive_spec", "policies", "sim/baselines")


@cache
def _digest(folders: tuple[str, ...]) -> str:
    found = hashlib.sha256()
    for folder in folders:
        path = ROOT / folder
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".json", ".npz") and "__pycache__" not in file.parts:
                found.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return found.hexdigest()


def key_of(cell: Cell, ran: str, seed: int) -> str:
    """Digest of what a row depends on."""
    arm = parse_arm(ran)
    judge = f"clock device engines records rows run script traffic {_JUDGE[cell.engine]}".split()
    folders = (*(f"benchmarks/judge/{name}.py" for name in judge), *_PRICES)
    if arm.policy:
        folders += (*_PACKAGE, f"adapters/{cell.engine}")
    cell = msgspec.structs.replace(cell, group="", extra=False, quick=False)
    what = cell, ran, seed, arm.options, arm.capability, arm.graphs
    text = msgspec.json.encode(what).decode() + _digest(folders)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Plan:
    """The tasks that are wanted, as far as what they depend on is there."""

    def __init__(
        self,
        cells: Sequence[Cell],
        arms: Sequence[str],
        seeds: Sequence[int],
        file: RowFile,
        known: Sequence[Cell] = (),
    ) -> None:
        """Without `arms`, each engine has its usual ones.

        `known` are the cells among which constant loads are found to tune tables on.
        """
        self._cells, self._arms, self._seeds, self._file = cells, arms, seeds, file
        self._all = known or cells

    def first(self) -> list[Task]:
        """Tasks that depend on no other."""
        wanted: dict[tuple[str, str, int], Task] = {}
        for cell in self._cells:
            arms = self._arms_of(cell)
            tuning = [arm for arm in (K0, *STATIC) if any(a in TABLES for a in arms)]
            for arm in dict.fromkeys([*arms, *tuning]):
                if arm not in TABLES:
                    self._want(wanted, cell, arm, arm)
            if TABLE_CONSTANT in arms:
                for other in self._constant_like(cell):
                    for arm in (K0, *STATIC):
                        self._want(wanted, other, arm, arm)
        return list(wanted.values())

    def second(self) -> list[Task]:
        """Tasks of tables that were tuned on what the first ones have left."""
        wanted: dict[tuple[str, str, int], Task] = {}
        for cell in self._cells:
            for arm in TABLES:
                if arm in self._arms_of(cell) and (ran := self._table(cell, arm)):
                    self._want(wanted, cell, arm, ran)
        return list(wanted.values())

    def _arms_of(self, cell: Cell) -> list[str]:
        arms = self._arms or ARMS[cell.engine]
        return [arm for arm in arms if has_arm(cell.engine, arm)]

    def _want(
        self, wanted: dict[tuple[str, str, int], Task], cell: Cell, arm: str, ran: str
    ) -> None:
        if ran.startswith("k") and int(ran[1:]) > cell.kmax:
            return
        for seed in self._seeds:
            key = key_of(cell, ran, seed)
            part = COLD if parse_arm(ran).learns else ""
            row = self._file.get(cell.name, arm, seed, part)
            if row is None or row.key != key:
                task = Task(cell=cell, arm=arm, ran=ran, seed=seed, key=key)
                wanted.setdefault((cell.name, arm, seed), task)

    def _constant_like(self, cell: Cell) -> list[Cell]:
        """Constant loads of the same device and drafter: what an operator tunes a table on."""
        same = [
            other
            for other in self._all
            if other.group == "constant"
            and (other.device, other.method, other.kind) == (cell.device, cell.method, cell.kind)
            and other.traffic.pieces[0].clients <= MOST_TUNED
        ]
        played = {other.traffic.records for other in same}
        if cell.traffic.records in played:
            same = [other for other in same if other.traffic.records == cell.traffic.records]
        elif played:
            first = same[0].traffic.records
            same = [other for other in same if other.traffic.records == first]
        return same

    def _rows(self, cell: Cell, arm: str) -> list[Row]:
        rows = (self._file.get(cell.name, arm, seed) for seed in self._seeds)
        return [row for row in rows if row is not None]

    def _table(self, cell: Cell, arm: str) -> str:
        ks = [int(name[1:]) for name in (K0, *STATIC) if int(name[1:]) <= cell.kmax]
        if arm == TABLE_CELL:
            rows = {k: self._rows(cell, f"k{k}") for k in ks}
            return tuned_on_cell(rows) if all(rows.values()) else ""
        like = self._constant_like(cell)
        by_load = {(other.name, k): self._rows(other, f"k{k}") for other in like for k in ks}
        found = {key: rows for key, rows in by_load.items() if rows}
        return tuned_on_constant(like, found) if found else ""


class Progress:
    """How much is done, and the time left."""

    def __init__(self, tasks: int) -> None:
        self._began = time.monotonic()
        self._tasks, self._done = tasks, 0

    def done(self, what: str) -> None:
        """A task has been done."""
        self._done += 1
        spent = time.monotonic() - self._began
        left = spent * (self._tasks / self._done - 1.0)
        share = 100 * self._done / self._tasks
        print(f"{share:5.1f} %  {left / 60:5.1f} min left  {what}", file=sys.stderr, flush=True)


def work_off(tasks: Sequence[Task], file: RowFile, out: Path, processes: int) -> list[str]:
    """Do tasks in so many processes; return what failed.

    Cells whose records are missing are left out, and stderr says so.
    """
    # Tasks that differ in their device alone stand together: `run.runs` prices them at once.
    # So do those of one engine.
    same = itertools.groupby(sorted(tasks, key=_same), key=_same)
    batches = [Batch(tuple(batch), out / "engines.log") for _, batch in same]
    progress = Progress(len(tasks))
    problems: list[str] = []
    left_out: list[str] = []
    for answers in run_in_processes(batches, min(processes, len(batches))):
        for task, answer in answers:
            for row in answer.rows:
                file.add(row)
            why = answer.error or answer.left_out
            if why:
                (problems if answer.error else left_out).append(f"{task.cell.name}: {why}")
            what = f"{task.cell.name}: {task.arm}, seed {task.seed}, {answer.cpu} s"
            progress.done(f"{task.cell.name}: {why}" if why else what)
    for why in dict.fromkeys(left_out):
        print(f"judge: left out: {why}", file=sys.stderr)
    return list(dict.fromkeys(problems))


def _same(task: Task) -> tuple[int, str, str]:
    """Tasks of the first seed come first."""
    traffic = msgspec.json.encode((task.cell.kind, task.cell.traffic, task.cell.kv_tokens))
    return task.seed, traffic.decode(), task.ran


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, then print a table."""
    given = _parser().parse_args(arguments)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    try:
        known = load_cells(given.file)
        cells = _chosen(known, given)
        arms = given.arms.split(",") if given.arms else [GOODPUT] if given.quick else []
        for arm in arms:
            if arm not in TABLES:
                parse_arm(arm)
        here = _here(cells, arms)
        seeds = [gate.SEED] if given.quick else list(range(1, given.seeds + 1))
        file = RowFile(out / "rows.jsonl")
        plan, problems = Plan(here, arms, seeds, file, known), list[str]()
        for tasks in (plan.first, plan.second):
            if wanted := tasks():
                problems += work_off(wanted, file, out, given.processes)
        file.write_sorted()
    except AdaptiveSpecError as error:
        print(f"judge: {error}", file=sys.stderr)
        return 1
    for problem in problems:
        print(f"judge: {problem}", file=sys.stderr)
    if given.quick:
        return _gate(cells, file, renew=given.renew)
    if given.results is not None:
        # What other groups, other arms and the other environment have shown is kept.
        before = published(given.results) if given.results.exists() else []
        by_name = {cell.name: cell for cell in before}
        for cell in figures(here, file, seeds):
            if cell.static:
                by_name[cell.name] = cell.beside(by_name.get(cell.name, cell))
        kept = [by_name[cell.name] for cell in known if cell.name in by_name]
        publish(kept, given.results)
    for engine in dict.fromkeys(cell.engine for cell in here):
        same = [cell for cell in here if cell.engine == engine]
        shown = arms or ARMS[engine]
        print(terminal_table(figures(same, file, seeds, shown), shown))
    return 1 if problems else 0


def _here(cells: Sequence[Cell], arms: Iterable[str]) -> list[Cell]:
    """Cells of the engines that this environment has; stderr says what waits or is left out."""
    for engine, title in TITLES.items():
        same = [cell for cell in cells if cell.engine == engine]
        if not same:
            continue
        if not installed(engine):
            print(
                f"judge: these wait for the environment that {title} is installed in: "
                + ", ".join(cell.name for cell in same),
                file=sys.stderr,
            )
        elif lacks := [arm for arm in arms if not has_arm(engine, arm)]:
            print(f"judge: {title} has no arm {', '.join(lacks)}", file=sys.stderr)
    return [cell for cell in cells if installed(cell.engine)]


def _gate(cells: Sequence[Cell], file: RowFile, *, renew: bool) -> int:
    found = gate.scores(cells, file)
    if renew:
        gate.renew(found)
    text, good = gate.verdict(found, gate.committed())
    print(text)
    return 0 if good and found else 1


def _chosen(cells: Iterable[Cell], given: argparse.Namespace) -> list[Cell]:
    found = list(cells)
    groups = list(dict.fromkeys(cell.group for cell in found))
    for wanted, known, what in (
        (_groups(given.groups, groups), groups, "group"),
        (_split(given.cells), [cell.name for cell in found], "cell"),
    ):
        for name in wanted:
            if name not in known:
                raise ConfigError(f"no {what} {name!r}; there are: {'; '.join(known)}")
    if given.quick:
        return gate.quick_cells(found)
    if given.cells:
        return [cell for cell in found if cell.name in _split(given.cells)]
    if given.groups:
        found = [cell for cell in found if cell.group in _groups(given.groups, groups)]
    elif not given.all:
        found = [cell for cell in found if not cell.group.startswith(LATER)]
    if not found:
        raise ConfigError(
            f"every group of {given.file} begins with {LATER!r}: use --all or --groups"
        )
    return [cell for cell in found if given.all or not cell.extra]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _groups(text: str, known: Sequence[str]) -> list[str]:
    """Names of groups; a beginning stands for all that begin so."""
    starts = {name: [each for each in known if each.startswith(name)] for name in _split(text)}
    return [each for name, found in starts.items() for each in found or [name]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judge", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--groups", default="", help="of cells.yaml, with commas; default: all")
    parser.add_argument("--all", action="store_true", help="the extra cells, too")
    parser.add_argument("--file", type=Path, default=FILE, help="cells of yours, as cells.yaml")
    parser.add_argument("--cells", default="", help="names, with commas")
    parser.add_argument("--arms", default="", help=f"with commas; default: {','.join(ARMS[VLLM])}")
    parser.add_argument("--seeds", type=int, default=1, help="so many, from 1 on")
    parser.add_argument("--processes", type=int, default=1, help="engine processes at a time")
    parser.add_argument("--quick", action="store_true", help="the gate's cells and arm")
    parser.add_argument("--renew", action="store_true", help="with --quick: commit its scores")
    parser.add_argument("--results", type=Path, help="write the figures of docs/measured.md there")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "judge")
    return parser
