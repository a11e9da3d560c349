"""Recorded steps to fit to: step traces, npz records and acceptance lists as one table.

A trace names task labels by number only; the numbers are its labels here. Where a record has
``contexts`` but no ``temperature``, all requests of the step were greedy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.operation.trace import read_trace
from adaptive_spec.sim.acceptance.data import AcceptanceData, steps_of
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.recorded import is_npz, load_recorded_npz
from adaptive_spec.sim.step_trace import RecordedStep, find_trace, read_request_steps
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
    return Steps(
        request=request,
        verified=drawn[at],
        accepted=accepted,
        temperature=data.temperatures[request],
        context=prompts[request] + (at - data.offsets[request]),
        load=unknown[:, 0],
        task=number[request].astype(np.int64),
        labels=labels,
        confidence=unknown if data.confidence is None else data.confidence[at].astype(np.float64),
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
        context=unknown[:, 0],
        load=unknown[:, 0],
        task=task.astype(np.int64),
        labels=labels,
        confidence=rows.confidence,
        entropy=unknown if rows.entropy is None else rows.entropy,
    )


def _is_trace(path: Path) -> bool:
    """A folder with segments, or a file whose first line is a step record."""
    if path.is_dir():
        return True
    try:
        row = next(read_trace(path), {})
    except (DataError, UnicodeDecodeError):
        return False
    return {"schema", "ids", "k", "accepted"} <= row.keys()


def traced_steps(path: Path) -> TracedSteps:
    """All steps of a trace. Raises DataError naming file and record, and what is wrong."""
    trace = find_trace(path)
    rows = list(read_request_steps(trace))
    times = [
        step.outcome(step.step, np.arange(len(step.ids)))
        for step in trace.steps()
        if step.seconds is not None and step.mode is not Mode.OFF_COLD
    ]
    deepest = max((step.k[place] for _, step, place in rows), default=0)
    if not deepest:
        raise DataError(f"{path}: no step verified a draft; record one with speculation on")
    tasks = [-1 if step.task is None else step.task[place] for _, step, place in rows]
    labels = {task: number for number, task in enumerate(dict.fromkeys(t for t in tasks if t >= 0))}

    def known(name: str, missing: Callable[[RecordedStep], float | None]) -> FloatArray:
        """[S] of a column that a record may lack."""
        found = ((getattr(step, name), step, place) for _, step, place in rows)
        values = [missing(step) if each is None else each[place] for each, step, place in found]
        return np.array(values, dtype=np.float64)  # None becomes nan

    def signal(name: str) -> FloatArray:
        """[S, K] of a draft signal, nan where there is none."""
        padded = np.full((len(rows), deepest), np.nan)
        for row, (_, step, place) in zip(padded, rows, strict=True):
            if (values := getattr(step, name)) is not None:
                own = np.array(values[place][:deepest], dtype=np.float64)
                row[: len(own)] = own
        return padded

    steps = Steps(
        request=np.array([request for request, _, _ in rows], dtype=np.int64),
        verified=np.array([step.k[place] for _, step, place in rows], dtype=np.int64),
        accepted=np.array([step.accepted[place] for _, step, place in rows], dtype=np.int64),
        temperature=known("temperature", lambda step: None if step.contexts is None else 0.0),
        context=known("contexts", lambda step: None),
        load=np.array([step.batch_size for _, step, _ in rows], dtype=np.float64),
        task=np.array([labels.get(task, -1) for task in tasks], dtype=np.int64),
        labels=tuple(map(str, labels)),
        confidence=signal("confidence"),
        entropy=signal("entropy"),
    )
    return TracedSteps(steps, times)
