"""Recorded steps: the one reader of step traces (format: `adaptive_spec.operation.trace`).

Traces of older versions lack ``available``, ``possible``, ``contexts`` and ``engine_k``; readers
that need one of them call `RecordedStep.need`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.operation.trace import read_segment, read_trace
from adaptive_spec.step import Capability, IntArray, Mode, StepOutcome

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Counts = list[Count]
Drafts = Annotated[int, msgspec.Meta(ge=0, le=254)]
"""Of a request in a step; acceptance data hold no more."""
Signal = list[Annotated[list[float | None], msgspec.Meta(max_length=254)]]
"""A value per request and draft position; null where unknown."""

_PER_REQUEST = (
    *("k", "accepted", "emitted", "available", "possible", "contexts", "propensity", "planned_k"),
    *("temperature", "task", "tpot_target", "opted_out"),
    *("confidence", "entropy", "late_confidence"),
)


class RecordedStep(msgspec.Struct, kw_only=True):
    """One step of a trace; columns as in the format, `process` numbers the recording processes."""

    step: Count
    now: float
    mode: Mode
    depth: Drafts
    seconds: float | None
    batch_size: Count
    batch_tokens: Count
    context_tokens: Count
    prefill_tokens: Count
    waiting: Count
    kv_free_tokens: Count
    ids: list[str]
    k: list[Drafts]
    accepted: Counts
    emitted: Counts
    available: Counts | None = None
    possible: Counts | None = None
    contexts: Counts | None = None
    engine_k: Count | None = None
    propensity: list[Annotated[float, msgspec.Meta(gt=0, le=1.000001)]] | None = None
    planned_k: Counts | None = None
    temperature: list[float] | None = None
    task: list[Annotated[int, msgspec.Meta(ge=-1, le=1 << 31)]] | None = None
    tpot_target: list[float | None] | None = None
    shared_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    opted_out: list[bool] | None = None
    confidence: Signal | None = None
    entropy: Signal | None = None
    late_confidence: Signal | None = None
    capability: Capability | None = None
    kv_total_tokens: Count | None = None
    task_names: dict[str, str] | None = None
    process: int = 0

    def __post_init__(self) -> None:
        for name in _PER_REQUEST:
            column = getattr(self, name)
            if column is not None and len(column) != len(self.ids):
                raise ValueError(f"{len(column)} {name} for {len(self.ids)} ids")
        for name, k, accepted, emitted in zip(
            self.ids, self.k, self.accepted, self.emitted, strict=True
        ):
            if accepted > k or emitted > accepted + 1:
                raise ValueError(
                    f"request {name!r} has k {k}, accepted {accepted}, emitted {emitted}"
                )

    def outcome(self, number: int, slots: IntArray) -> StepOutcome:
        """Return what the step did; nan where its time was not measured.

        Args:
            number: of the step, for whoever learns from it.
            slots: [B] of its requests.
        """
        verified, accepted, emitted = (
            np.array(column, dtype=np.int64) for column in (self.k, self.accepted, self.emitted)
        )
        return StepOutcome(
            step=number,
            slots=slots,
            verified=verified,
            accepted=accepted,
            emitted=emitted,
            batch_size=self.batch_size,
            batch_tokens=self.batch_tokens,
            context_tokens=self.context_tokens,
            prefill_tokens=self.prefill_tokens,
            draft_depth=self.depth,
            ragged=len(set(self.k)) > 1,
            seconds=math.nan if self.seconds is None else self.seconds,
            now=self.now,
        )


def read_steps(path: Path) -> Iterator[RecordedStep]:
    """Yield the steps of a folder of segments, or of one segment, in order.

    Raises DataError naming the file or folder, the step, and what is wrong.
    """
    process, before = 0, -1
    for record in read_trace(path) if path.is_dir() else read_segment(path):
        try:
            step = msgspec.convert(record, RecordedStep)
        except msgspec.ValidationError as error:
            raise DataError(f"{path}, step {record.get('step')}: {error}") from error
        # Step numbers of a process ascend; another process has requests of its own.
        process += step.step <= before
        before = step.step
        step.process = process
        yield step


def read_request_steps(path: Path) -> Iterator[tuple[int, RecordedStep, int]]:
    """Yield (request number, step, row of the request in it) of every request with an id.

    Requests are numbered by first appearance; the same id in another process is another request.
    Raises DataError as `read_steps` does.
    """
    number_of: dict[tuple[int, str], int] = {}
    for step in read_steps(path):
        for row, name in enumerate(step.ids):
            # Without an id the steps of different requests cannot be told apart.
            if name:
                number = number_of.setdefault((step.process, name), len(number_of))
                yield number, step, row


class TaskNames:
    """Task labels by number, of each process of each source."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)

    def read(self, source: int, step: RecordedStep) -> None:
        """Take up the labels that a step names."""
        if step.task_names:
            self._names[source, step.process].update(step.task_names)

    def of(self, source: int, step: RecordedStep, row: int) -> str:
        """Return the label of a request; "" without one."""
        if step.task is None or step.task[row] < 0:
            return ""
        number = step.task[row]
        return self._names[source, step.process].get(str(number), f"task {number}")


def segment_folders(folder: Path) -> list[Path]:
    """Return the folder, or its folders if it has no segments itself."""
    if any(folder.glob("steps-*.jsonl")):
        return [folder]
    return sorted(each for each in folder.iterdir() if each.is_dir())
