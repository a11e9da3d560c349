"""One measurement, and the file that each is appended to as soon as it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from .errors import BenchmarkError

DISTURBED_CPU = 0.25
"""Cores used by others, beyond what was expected, above which a cell is measured again."""


HEADS = {"mtp": "MTP head", "eagle3": "EAGLE-3 head"}


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same while arms are compared.

    Attributes:
        draft: `good` or `poor`, or a trained head: `mtp` or `eagle3`.
        workload: `mixed` or a kind of prompt.
        temperature: of sampling.
        draft_sampling: vLLM's `draft_sample_method`.
    """

    draft: str
    workload: str
    temperature: float
    draft_sampling: str

    @property
    def name(self) -> str:
        """For file names."""
        name = f"{self.draft}-{self.workload}-t{self.temperature:g}"
        return name if self.temperature == 0 else f"{name}-{self.draft_sampling}"

    @property
    def title(self) -> str:
        """For people."""
        sampled = f"temperature {self.temperature:g}, {self.draft_sampling} drafts"
        how = sampled if self.temperature > 0 else "greedy"
        return f"{self.drafter}, {self.workload} prompts, {how}"

    @property
    def drafter(self) -> str:
        """For people."""
        return HEADS.get(self.draft, f"{self.draft} draft")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One arm at one concurrency in one repeat.

    Attributes:
        began, ended: monotonic clock of this machine.
        seconds: between them.
        tokens: emitted.
        finished: requests answered meanwhile.
        steps: of the engine.
        request_steps: decoding requests, summed over the steps.
        drafted: draft tokens verified.
        accepted: tokens that decoding steps emitted beyond the first.
        by_kind: kind of prompt -> [request steps, accepted].
        others_cpu: cores that other processes have used meanwhile.
        beside: of these, cores that were expected: something else runs throughout.
        table: vLLM's table of K by batch size, if the arm had one.
        plugin: growth of the plugin's counters, for its arms.
    """

    arm: str
    concurrency: int
    repeat: int
    began: float
    ended: float
    seconds: float
    tokens: int
    finished: int
    steps: int
    request_steps: int
    drafted: int
    accepted: int
    by_kind: dict[str, tuple[int, int]]
    others_cpu: float
    beside: float = 0.0
    table: list[tuple[int, int, int]] | None = None
    plugin: dict[str, Any] | None = None

    @property
    def tokens_per_second(self) -> float:
        """Throughput."""
        return self.tokens / self.seconds

    @property
    def tokens_per_step(self) -> float:
        """Emitted per request and decoding step: no speed-up can be larger."""
        return 1.0 + self.accepted / max(self.request_steps, 1)

    @property
    def disturbed(self) -> bool:
        """Did other processes use the machine?"""
        return self.others_cpu > self.beside + DISTURBED_CPU

    @property
    def mean_k(self) -> float:
        """Drafts verified per request and decoding step."""
        return self.drafted / max(self.request_steps, 1)


class _Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    condition: Condition | None = None
    cell: Cell | None = None


class CellFile:
    """Cells of one condition, one JSON line each, appended. A line cut off by a kill is redone."""

    def __init__(self, path: Path, condition: Condition) -> None:
        """Raises BenchmarkError if the file holds something else."""
        self._path = path
        self.cells: list[Cell] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._read(condition)
        else:
            self._append(_Record(condition=condition))

    def add(self, cell: Cell) -> None:
        """Keep a cell; it is on disk when this returns."""
        self.cells.append(cell)
        self._append(_Record(cell=cell))

    def has(self, arm: str, concurrency: int, repeat: int) -> bool:
        """Was this cell measured already?"""
        wanted = (arm, concurrency, repeat)
        return any((cell.arm, cell.concurrency, cell.repeat) == wanted for cell in self.cells)

    def _read(self, condition: Condition) -> None:
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            self._path.write_bytes(whole)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                record = msgspec.json.decode(line, type=_Record)
            except msgspec.DecodeError as error:
                raise BenchmarkError(
                    f"{self._path}:{number}: not a record of this benchmark ({error}); "
                    "choose another --output or remove the file"
                ) from error
            if record.condition not in (None, condition):
                raise BenchmarkError(
                    f"{self._path}:{number}: measured under other conditions; "
                    "choose another --output"
                )
            if record.cell is not None:
                self.cells.append(record.cell)

    def _append(self, record: _Record) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
            file.flush()
