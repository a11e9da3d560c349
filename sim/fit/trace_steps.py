"""Steps and step times out of step traces (`adaptive_spec.operation.trace`).

A trace names task labels by number only; the numbers are its labels here. Where a record has
``contexts`` but no ``temperature``, all requests of the step were greedy.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.errors import AdaptiveSpecError, DataError
from adaptive_spec.operation.trace import SCHEMA, read_segment, read_trace
from adaptive_spec.sim.fit.steps import Steps
from adaptive_spec.step import FloatArray, Mode, StepOutcome

_Count = Annotated[int, msgspec.Meta(ge=0)]
_GZIP = b"\x1f\x8b"


class TracedSteps(NamedTuple):
    """Steps for the hazards, and outcomes for the step times."""

    steps: Steps
    times: list[StepOutcome]


class _Record(msgspec.Struct):
    """The columns of a step record that are used here."""

    step: _Count
    ids: list[str]
    k: list[_Count]
    accepted: list[_Count]
    emitted: list[_Count]
    mode: str
    depth: _Count
    seconds: float | None
    batch_size: _Count
    batch_tokens: _Count
    context_tokens: _Count
    prefill_tokens: _Count
    contexts: list[float] | None = None
    temperature: list[float] | None = None
    task: list[int] | None = None
    confidence: list[list[float | None]] | None = None
    entropy: list[list[float | None]] | None = None

    def __post_init__(self) -> None:
        size = len(self.ids)
        for name in ("k", "accepted", "emitted", *_OPTIONAL):
            column = getattr(self, name)
            if column is not None and len(column) != size:
                raise ValueError(f"`{name}` has {len(column)} entries for {size} ids")
        if any(a > k for a, k in zip(self.accepted, self.k, strict=True)):
            raise ValueError("more drafts accepted than verified")


_OPTIONAL = ("contexts", "temperature", "task", "confidence", "entropy")


def is_trace(path: Path) -> bool:
    """A folder with segments, or a file whose first line is a step record."""
    if path.is_dir():
        if not any(path.glob("steps-*.jsonl")):
            raise DataError(f"{path}: a folder without steps-*.jsonl; name a file in it")
        return True
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            line = stream.readline()
        row = msgspec.json.decode(line)
    except (OSError, EOFError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return isinstance(row, dict) and {"schema", "ids", "k", "accepted"} <= row.keys()


def read_traced_steps(path: Path) -> TracedSteps:
    """All steps of a trace. Raises DataError naming file and record, and what is wrong."""
    rows: list[tuple[int, _Record, int]] = []
    times: list[StepOutcome] = []
    number_of: dict[tuple[int, str], int] = {}
    labels: dict[str, int] = {}
    deepest, process, before = 1, 0, -1
    for number, raw in enumerate(_records(path), start=1):
        try:
            record = msgspec.convert(raw, _Record)
        except msgspec.ValidationError as error:
            raise DataError(f"{path}: record {number}: {error}") from error
        # Step numbers of a process ascend. Another process has requests of its own.
        if record.step <= before:
            process += 1
        before = record.step
        if record.seconds is not None and record.mode != Mode.OFF_COLD.value:
            times.append(_outcome(record))
        for place, name in enumerate(record.ids):
            if name:
                request = number_of.setdefault((process, name), len(number_of))
                rows.append((request, record, place))
                deepest = max(deepest, record.k[place])
    if not any(record.k[place] for _, record, place in rows):
        raise DataError(f"{path}: no step verified a draft; record one with speculation on")
    for _, record, place in rows:
        if record.task is not None and record.task[place] >= 0:
            labels.setdefault(str(record.task[place]), len(labels))
    count = len(rows)
    signals = {name: np.full((count, deepest), np.nan) for name in ("confidence", "entropy")}
    columns = {name: np.full(count, np.nan) for name in ("contexts", "temperature")}
    for row, (_, record, place) in enumerate(rows):
        for name, column in columns.items():
            values = getattr(record, name)
            if values is not None:
                column[row] = values[place]
            elif name == "temperature" and record.contexts is not None:
                column[row] = 0.0
        for name, signal in signals.items():
            values = getattr(record, name)
            if values is not None:
                _put(signal[row], values[place])
    task = [
        -1 if record.task is None else labels.get(str(record.task[place]), -1)
        for _, record, place in rows
    ]
    steps = Steps(
        request=np.array([request for request, _, _ in rows], dtype=np.int64),
        verified=np.array([r.k[place] for _, r, place in rows], dtype=np.int64),
        accepted=np.array([r.accepted[place] for _, r, place in rows], dtype=np.int64),
        temperature=columns["temperature"],
        context=columns["contexts"],
        load=np.array([r.batch_size for _, r, _ in rows], dtype=np.float64),
        task=np.array(task, dtype=np.int64),
        labels=tuple(labels),
        confidence=signals["confidence"],
        entropy=signals["entropy"],
    )
    return TracedSteps(steps, times)


def _put(row: FloatArray, values: list[float | None]) -> None:
    for position, value in enumerate(values[: len(row)]):
        if value is not None:
            row[position] = value


def _outcome(record: _Record) -> StepOutcome:
    nothing = np.zeros(0, dtype=np.int64)
    return StepOutcome(
        step=record.step,
        slots=nothing,
        verified=nothing,
        accepted=nothing,
        emitted=nothing,
        batch_size=record.batch_size,
        batch_tokens=record.batch_tokens,
        context_tokens=record.context_tokens,
        prefill_tokens=record.prefill_tokens,
        draft_depth=record.depth,
        ragged=len(set(record.k)) > 1,
        seconds=float(record.seconds or 0.0),
    )


def _records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        yield from read_trace(path) if path.is_dir() else read_segment(path)
    except DataError:
        raise
    except (AdaptiveSpecError, OSError) as error:
        raise DataError(f"{path}: {error}; expected a step trace of schema {SCHEMA}") from error
