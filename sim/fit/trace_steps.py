"""Steps and step times out of step traces (`adaptive_spec.operation.trace`).

A trace names task labels by number only; the numbers are its labels here. Where a record has
``contexts`` but no ``temperature``, all requests of the step were greedy.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.operation.trace import read_segment
from adaptive_spec.sim.fit.steps import Steps
from adaptive_spec.sim.step_trace import RecordedStep, read_request_steps, read_steps
from adaptive_spec.step import FloatArray, Mode, StepOutcome


class TracedSteps(NamedTuple):
    """Steps for the hazards, and outcomes for the step times."""

    steps: Steps
    times: list[StepOutcome]


def is_trace(path: Path) -> bool:
    """A folder with segments, or a file whose first line is a step record."""
    if path.is_dir():
        if not any(path.glob("steps-*.jsonl")):
            raise DataError(f"{path}: a folder without steps-*.jsonl; name a file in it")
        return True
    try:
        row = next(read_segment(path), {})
    except (DataError, UnicodeDecodeError):
        return False
    return {"schema", "ids", "k", "accepted"} <= row.keys()


def read_traced_steps(path: Path) -> TracedSteps:
    """All steps of a trace. Raises DataError naming file and record, and what is wrong."""
    rows = list(read_request_steps(path))
    times = [
        _outcome(step)
        for step in read_steps(path)
        if step.seconds is not None and step.mode is not Mode.OFF_COLD
    ]
    labels: dict[str, int] = {}
    deepest = max((step.k[place] for _, step, place in rows), default=0)
    if not deepest:
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


def _outcome(record: RecordedStep) -> StepOutcome:
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
