"""Recorded steps: the one reader of step traces (format: `adaptive_spec.operation.trace`).

Traces of older versions lack ``available``, ``possible``, ``contexts`` and ``engine_k``; readers
that need one of them call `RecordedStep.need`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.audit.blocks import Arm, Window
from adaptive_spec.errors import DataError
from adaptive_spec.operation.segments import Segment, find_segments, read_segment
from adaptive_spec.step import Capability, IntArray, Mode, StepOutcome

MOST_DRAFTS = 254
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
Requests = Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]
Drafts = Annotated[int, msgspec.Meta(ge=0, le=MOST_DRAFTS)]
"""Of a request in a step; acceptance data hold no more."""
Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Counts = list[Tokens]
Signal = list[Annotated[list[float | None], msgspec.Meta(max_length=254)]]
"""A value per request and draft position; null where unknown."""

_PER_REQUEST = (
    *("k", "accepted", "emitted", "available", "possible", "contexts", "propensity", "planned_k"),
    *("temperature", "task", "tpot_target", "opted_out"),
    *("confidence", "entropy", "late_confidence"),
)


class RecordedStep(msgspec.Struct, kw_only=True):
    """One step of a trace; columns as in the format.

    Attributes:
        process: number of the recording process.
        source: its folder and name.
        requests: number of each request in the trace, by first appearance; -1 without an id.
    """

    step: Count
    now: Seconds
    mode: Mode
    depth: Drafts
    seconds: Seconds | None
    batch_size: Requests
    batch_tokens: Tokens
    context_tokens: Tokens
    prefill_tokens: Tokens
    waiting: Count
    kv_free_tokens: Count
    ids: list[str]
    k: list[Drafts]
    accepted: Counts
    emitted: Counts
    available: Counts | None = None
    possible: Counts | None = None
    contexts: Counts | None = None
    engine_k: Drafts | None = None
    propensity: list[Annotated[float, msgspec.Meta(gt=0, le=1.000001)]] | None = None
    planned_k: Counts | None = None
    temperature: list[float] | None = None
    task: list[Annotated[int, msgspec.Meta(ge=-1, le=1 << 31)]] | None = None
    tpot_target: list[float | None] | None = None
    shared_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    opted_out: list[bool] | None = None
    confidence: Signal | None = None
    entropy: Signal | None = None
    late_confidence: Signal | None = None
    prompt_batches: list[tuple[Requests, Tokens, Seconds]] = []
    audit: tuple[Count, Window, Arm, bool] | None = None
    capability: Capability | None = None
    kv_total_tokens: Count | None = None
    model: str = ""
    task_names: dict[str, str] | None = None
    process: int = 0
    source: str = ""
    requests: list[int] = []

    def __post_init__(self) -> None:
        if self.capability is not None and self.capability.max_draft_tokens > MOST_DRAFTS:
            raise ValueError(f"max_draft_tokens is above {MOST_DRAFTS}")
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
            prompt_batches=tuple(self.prompt_batches),
        )


@dataclass(frozen=True)
class RecordedTrace:
    """Segments of step traces, as they were when they were found. Reading it twice gives the same.

    Attributes:
        name: the places that were named, for people.
        segments: of each process in order.
    """

    name: str
    segments: tuple[Segment, ...]

    @property
    def processes(self) -> list[str]:
        """Folder and name of each process that recorded."""
        return list(dict.fromkeys(map(_process_of, self.segments)))

    def only(self, processes: Sequence[str]) -> RecordedTrace:
        """Return the part that these processes recorded."""
        own = tuple(each for each in self.segments if _process_of(each) in processes)
        return RecordedTrace(", ".join(processes), own)

    def steps(self) -> Iterator[RecordedStep]:
        """Yield the steps in order.

        Raises DataError naming the file, the step, and what is wrong.
        """
        return (step for _, step in self.steps_by_segment())

    def steps_by_segment(self) -> Iterator[tuple[Path, RecordedStep]]:
        """Yield each step with the file that holds it. Raises as `steps`."""
        process, before, source = -1, -1, ""
        numbers, kmax = _RequestNumbers(), MOST_DRAFTS
        for segment in self.segments:
            own = _process_of(segment)
            for record in read_segment(segment):
                try:
                    step = msgspec.convert(record, RecordedStep)
                except msgspec.ValidationError as error:
                    raise DataError(f"{segment.path}, step {record.get('step')}: {error}") from None
                # Step numbers of a process ascend; another process has requests of its own.
                if step.step <= before or own != source:
                    process, source = process + 1, own
                    numbers.begin_process()
                    kmax = MOST_DRAFTS
                before = step.step
                if step.capability is not None:
                    kmax = step.capability.max_draft_tokens
                if max(step.depth, *step.k, 0) > kmax:
                    raise DataError(
                        f"{segment.path}, step {step.step}: more drafts than Kmax {kmax}"
                    )
                step.process, step.source = process, source
                step.requests = numbers.of(step)
                yield segment.path, step


Source = RecordedTrace | Path | Sequence[Path]
"""A trace, or folders and segments of it."""


def find_trace(source: Source) -> RecordedTrace:
    """Return the trace of these places. Raises DataError for a place without segments."""
    if isinstance(source, RecordedTrace):
        return source
    places = [source] if isinstance(source, Path) else source
    found: dict[Path, Segment] = {}
    for place in places:
        segments = find_segments(place)
        if not segments:
            raise DataError(f"{place}: a folder without steps-*.jsonl, also in its folders")
        found.update((segment.path, segment) for segment in segments)
    return RecordedTrace(", ".join(map(str, places)), tuple(found.values()))


def _process_of(segment: Segment) -> str:
    path = segment.path
    return str(path.with_name(path.name.partition(".")[0].rpartition("-")[0] or path.name))


@dataclass(slots=True)
class _Last:
    """Number, context and largest K of a request after a step."""

    number: int
    context: int
    k: int

    def fits(self, context: int, k: int) -> bool:
        return abs(context - self.context) <= 2 * max(k, self.k) + 1


class _RequestNumbers:
    """Numbers of requests by first appearance; clients use ids again.

    The context of a request grows by what it emits. Where that of an id does not, the row is that
    of the request whose context it continues, else of a new one. Engines that schedule ahead count
    drafts before they are verified: with two steps under way a context is right within 2 K.
    """

    def __init__(self) -> None:
        self._of_id: dict[str, _Last] = {}
        self._before: dict[int, _Last] = {}
        """By context, those of the step before."""
        self._found = 0

    def begin_process(self) -> None:
        self._of_id.clear()
        self._before.clear()

    def of(self, step: RecordedStep) -> list[int]:
        """Return the number of each request; -1 without an id, which tells nobody apart."""
        found, now = [-1] * len(step.ids), {}
        for row, name in enumerate(step.ids):
            if not name:
                continue
            k, last = step.k[row], self._of_id.get(name)
            context = step.contexts[row] if step.contexts else last.context if last else 0
            if last is None or not last.fits(context, k):
                last = self._before.get(context) if last else None
                if last is None or last.number in found:
                    last = _Last(self._found, context, k)
                    self._found += 1
            found[row] = last.number
            after = _Last(last.number, context + step.emitted[row], max(k, last.k))
            self._of_id[name] = now[after.context] = after
        self._before = now
        return found


def read_steps(source: Source) -> Iterator[RecordedStep]:
    """Yield the steps of a trace in order. Raises DataError as `RecordedTrace.steps` does."""
    return find_trace(source).steps()


class TaskNames:
    """Task labels by number, of each process."""

    def __init__(self) -> None:
        self._names: dict[int, dict[str, str]] = defaultdict(dict)

    def read(self, step: RecordedStep) -> None:
        """Add the labels that a step names."""
        if step.task_names:
            self._names[step.process].update(step.task_names)

    def of(self, step: RecordedStep, row: int) -> str:
        """Return the label of a request; "" without one."""
        if step.task is None or step.task[row] < 0:
            return ""
        number = step.task[row]
        return self._names[step.process].get(str(number), f"task {number}")
