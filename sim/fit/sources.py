"""Recorded steps to fit to: step traces, npz records and acceptance lists as one table.

A trace names task labels by number only; the numbers are its labels here. Where a record has
``contexts`` but no ``temperature``, all requests of the step were greedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.operation.trace import read_segment
from adaptive_spec.sim.acceptance.data import AcceptanceData, steps_of
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.recorded import is_npz, load_recorded_npz
from adaptive_spec.sim.step_trace import read_request_steps, read_steps
from adaptive_spec.step import FloatArray, IntArray, Mode, StepOutcome

_BY_STEP = (
    *("request", "verified", "accepted", "temperature"),
    *("context", "load", "task", "confidence", "entropy"),
)
"""Columns with a row for each step."""


@dataclass(frozen=True, eq=False)
class Steps:
    """S steps of R requests, those of a request in order. What is unknown is nan.

    Attributes:
        request: [S] 0..R - 1.
        verified: [S] drafts verified, K.
        accepted: [S] 0..verified.
        temperature: [S] of the target.
        context: [S] tokens in the request's KV cache.
        load: [S] requests that decode in the step.
        task: [S] index into `labels`, -1 without one.
        labels: task labels.
        confidence: [S, P] maximum draft probability at each position.
        entropy: [S, P] nats.
    """

    request: IntArray
    verified: IntArray
    accepted: IntArray
    temperature: FloatArray
    context: FloatArray
    load: FloatArray
    task: IntArray
    labels: tuple[str, ...]
    confidence: FloatArray
    entropy: FloatArray

    @property
    def requests(self) -> int:
        """R."""
        return int(self.request.max(initial=-1)) + 1

    def of_requests(self, chosen: IntArray) -> Steps:
        """Return the steps of these requests, numbered anew in the order given."""
        number = np.full(self.requests, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        rows = number[self.request] >= 0
        columns = {name: getattr(self, name)[rows] for name in _BY_STEP}
        columns["request"] = number[columns["request"]]
        return Steps(labels=self.labels, **columns)


def joined(parts: Sequence[Steps]) -> Steps:
    """All steps of several tables; requests are numbered on."""
    width = max(part.confidence.shape[1] for part in parts)
    labels: list[str] = []
    requests, tasks = [], []
    first = 0
    for part in parts:
        requests.append(part.request + first)
        first += part.requests
        number = []
        for label in part.labels:
            if label not in labels:
                labels.append(label)
            number.append(labels.index(label))
        tasks.append(np.array([*number, -1], dtype=np.int64)[part.task])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("verified", "accepted", "temperature", "context", "load")
    }
    signals = {
        name: np.concatenate([_widened(getattr(part, name), width) for part in parts])
        for name in ("confidence", "entropy")
    }
    return Steps(
        request=np.concatenate(requests),
        task=np.concatenate(tasks),
        labels=tuple(labels),
        **columns,
        **signals,
    )


def _widened(signal: FloatArray, width: int) -> FloatArray:
    missing = width - signal.shape[1]
    return np.pad(signal, ((0, 0), (0, missing)), constant_values=np.nan)


class TracedSteps(NamedTuple):
    """Steps for the hazards, and outcomes for the step times."""

    steps: Steps
    times: list[StepOutcome]


def read_source(
    path: Path, *, drafter_list: str = "eagle", kmax: int = 8, seed: int = 0
) -> TracedSteps:
    """Steps of one source; only traces have step times.

    Args:
        path: a folder or file with a step trace (`adaptive_spec.operation.trace`), an npz of steps
            as `adaptive_spec.sim.acceptance.recorded` reads it, or acceptance lists.
        drafter_list: which list of per-position lists.
        kmax: largest K that lists are replayed with.
        seed: of the K that lists are replayed with.

    Raises DataError naming the file and what is wrong.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if _is_trace(path):
        return traced_steps(path)
    if path.is_file() and is_npz(path):
        return TracedSteps(_npz_steps(path), [])
    data = load_acceptance([path], drafter_list=drafter_list, seed=seed, kmax=kmax)
    return TracedSteps(replayed_steps(data, seed=seed), [])


def replayed_steps(data: AcceptanceData, *, seed: int) -> Steps:
    """Steps of a replay in which each step's K is drawn from 1..depth.

    K is drawn independently of what is accepted, so that what is censored says nothing.
    """
    if data.tree_sizes is not None:
        raise DataError(f"{data.name}: token trees have no draft positions to fit hazards to")
    random = np.random.default_rng(seed)
    drawn = random.integers(1, data.depth + 1, len(data.accepted)).astype(np.int64)
    if data.proposed is not None:
        drawn = np.minimum(drawn, data.proposed.astype(np.int64))
    at, accepted = steps_of(data, drawn)
    request: IntArray = (np.searchsorted(data.offsets, at, side="right") - 1).astype(np.int64)
    prompts = np.where(data.prompt_tokens > 0, data.prompt_tokens, np.nan)
    labels = tuple(dict.fromkeys(label for label in data.labels if label))
    number = np.array([labels.index(label) if label else -1 for label in data.labels])
    unknown = np.full((len(at), data.depth), np.nan)
    confidence = unknown if data.confidence is None else data.confidence[at].astype(np.float64)
    return Steps(
        request=request,
        verified=drawn[at],
        accepted=accepted,
        temperature=data.temperatures[request],
        context=prompts[request] + (at - data.offsets[request]),
        load=np.full(len(at), np.nan),
        task=number[request].astype(np.int64),
        labels=labels,
        confidence=confidence,
        entropy=unknown,
    )


def _npz_steps(file: Path) -> Steps:
    rows = load_recorded_npz(file)
    steps, positions = rows.confidence.shape
    unknown = np.full((steps, positions), np.nan)
    labels, task = (rows.name,), np.zeros(steps, dtype=np.int64)
    if rows.labels is not None:
        found, task = np.unique(np.array(rows.labels)[rows.request], return_inverse=True)
        labels = tuple(found.tolist())
    return Steps(
        request=rows.request,
        verified=np.full(steps, positions, dtype=np.int64),
        accepted=rows.accepted,
        temperature=np.full(steps, rows.temperature),
        context=np.full(steps, np.nan),
        load=np.full(steps, np.nan),
        task=task.astype(np.int64),
        labels=labels,
        confidence=rows.confidence,
        entropy=unknown if rows.entropy is None else rows.entropy,
    )


def _is_trace(path: Path) -> bool:
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


def traced_steps(path: Path) -> TracedSteps:
    """All steps of a trace. Raises DataError naming file and record, and what is wrong."""
    rows = list(read_request_steps(path))
    times = [
        step.outcome(step.step, np.arange(len(step.ids)))
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
