"""Recorded steps as the values a policy sees."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.operation.trace import read_trace
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.step import (
    Capability,
    FloatArray,
    IntArray,
    Mode,
    StepContext,
    StepOutcome,
)

_Count = Annotated[int, msgspec.Meta(ge=0)]
_NEEDED = ("available", "possible", "contexts", "engine_k")


class _Record(msgspec.Struct):
    """The columns that are used here."""

    step: int
    now: float
    mode: Mode
    depth: _Count
    seconds: float | None
    batch_size: _Count
    batch_tokens: _Count
    context_tokens: _Count
    prefill_tokens: _Count
    waiting: _Count
    kv_free_tokens: _Count
    ids: list[str]
    k: list[_Count]
    accepted: list[_Count]
    emitted: list[_Count]
    available: list[_Count]
    possible: list[_Count]
    contexts: list[_Count]
    engine_k: _Count
    propensity: list[Annotated[float, msgspec.Meta(gt=0, le=1.000001)]] | None = None
    planned_k: list[_Count] | None = None
    temperature: list[float] | None = None
    task: list[int] | None = None
    tpot_target: list[float | None] | None = None
    confidence: list[list[float | None]] | None = None
    entropy: list[list[float | None]] | None = None
    capability: Capability | None = None
    kv_total_tokens: _Count | None = None

    def __post_init__(self) -> None:
        columns = {
            name: value for name in _PER_REQUEST if (value := getattr(self, name)) is not None
        }
        for name, column in columns.items():
            if len(column) != len(self.ids):
                raise ValueError(f"{len(column)} {name} for {len(self.ids)} ids")
        for name in ("confidence", "entropy"):
            if len({len(row) for row in getattr(self, name) or ()}) > 1:
                raise ValueError(f"rows of {name} differ in length")
        pairs = zip(self.accepted, self.k, self.emitted, strict=True)
        if any(accepted > k or emitted > accepted + 1 for accepted, k, emitted in pairs):
            raise ValueError("accepted must be within 0..k, emitted within 0..accepted + 1")


_PER_REQUEST = (
    *("k", "accepted", "emitted", "available", "possible", "contexts", "propensity", "planned_k"),
    *("temperature", "task", "tpot_target", "confidence", "entropy"),
)


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One step: what was known, what ran, and how likely it was.

    Attributes:
        context: as a policy sees it, slots given anew.
        outcome: what ran.
        propensity: [B] of the K that ran; nan where it was not planned so; None if the step was
            not randomised or the policy's K did not run.
        ended: slots whose last step this is.
    """

    context: StepContext
    outcome: StepOutcome
    propensity: FloatArray | None
    ended: IntArray


class LoggedTrace:
    """A recorded trace, read anew each time its steps are asked for.

    Raises DataError naming the folder, and the step where one is wrong.
    """

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise DataError(
                f"{directory}: no such folder; a step trace is a folder of steps-*.jsonl"
            )
        self.directory = directory
        self.length = 0
        """Steps in which a request decodes."""
        self._last_step: dict[str, int] = {}
        for at, record in enumerate(self._records()):
            self._last_step.update(dict.fromkeys(record.ids, at))
            self.length = at + 1
        if not self.length:
            raise DataError(
                f"{directory}: no steps in which a request decodes in any steps-*.jsonl"
            )

    @property
    def requests(self) -> int:
        """How many there are."""
        return len(self._last_step)

    def steps(self) -> Iterator[LoggedStep]:
        """The steps in which a request decodes, in order."""
        slots = RequestSlots()
        capability: Capability | None = None
        total = 1 << 40
        for at, record in enumerate(self._records()):
            capability = record.capability or capability
            if record.kv_total_tokens is not None:
                total = record.kv_total_tokens
            if capability is None:
                raise DataError(
                    f"{self.directory}: its first line says nothing of the engine's limits "
                    "(`capability`): keep segments whole"
                )
            rows = np.array([slots.assign(name) for name in record.ids], dtype=np.int64)
            leaving = [name for name in record.ids if self._last_step[name] == at]
            ended = np.array([slots.get(name) for name in leaving], dtype=np.int64)
            yield _step(record, at, rows, ended, capability, total)
            for name in leaving:
                slots.release(name)

    def _records(self) -> Iterator[_Record]:
        for record in read_trace(self.directory):
            converted = _converted(self.directory, record)
            if converted.ids and all(converted.ids):
                yield converted


def _converted(directory: Path, record: dict[str, Any]) -> _Record:
    missing = [name for name in _NEEDED if name not in record]
    if missing:
        raise DataError(
            f"{directory}, step {record.get('step')}: no column {missing[0]!r}: the trace is from "
            "an older version; record it anew"
        )
    try:
        return msgspec.convert(record, _Record)
    except msgspec.ValidationError as error:
        raise DataError(f"{directory}, step {record.get('step')}: {error}") from error


def _step(
    record: _Record,
    at: int,
    slots: IntArray,
    ended: IntArray,
    capability: Capability,
    kv_total_tokens: int,
) -> LoggedStep:
    batch = len(slots)
    context = StepContext(
        step=at,  # ascending even where the recording process was started anew
        capability=capability,
        request_ids=record.ids,
        slots=slots,
        context_tokens=_integers(record.contexts),
        draft_available=_integers(record.available),
        draft_possible=_integers(record.possible),
        engine_k=record.engine_k,
        tpot_target=_numbers(record.tpot_target, math.inf, (batch,)),
        task=np.full(batch, -1) if record.task is None else _integers(record.task),
        temperature=_numbers(record.temperature, 0.0, (batch,)),
        confidence=_matrix(record.confidence),
        entropy=_matrix(record.entropy),
        waiting=record.waiting,
        prefill_tokens=record.prefill_tokens,
        kv_free_tokens=record.kv_free_tokens,
        kv_total_tokens=kv_total_tokens,
        now=record.now,
    )
    verified = _integers(record.k)
    outcome = StepOutcome(
        step=at,
        slots=slots,
        verified=verified,
        accepted=_integers(record.accepted),
        emitted=_integers(record.emitted),
        batch_size=record.batch_size,
        batch_tokens=record.batch_tokens,
        context_tokens=record.context_tokens,
        prefill_tokens=record.prefill_tokens,
        draft_depth=record.depth,
        ragged=len(set(record.k)) > 1,
        seconds=math.nan if record.seconds is None else record.seconds,
        now=record.now,
    )
    propensity = None
    if record.propensity is not None and record.mode not in (Mode.ENGINE, Mode.SHADOW):
        propensity = np.array(record.propensity, dtype=np.float64)
        if record.planned_k is not None:
            propensity[_integers(record.planned_k) != verified] = np.nan
    return LoggedStep(context, outcome, propensity, ended)


def _integers(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def _numbers(values: Any, missing: float, shape: tuple[int, ...]) -> FloatArray:
    if values is None:
        return np.full(shape, missing)
    numbers = np.array(values, dtype=np.float64)  # None becomes nan
    return np.where(np.isnan(numbers), missing, numbers)


def _matrix(values: list[list[float | None]] | None) -> FloatArray | None:
    return None if values is None else np.array(values, dtype=np.float64)
