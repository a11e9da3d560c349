"""Summaries of traces, enough for a prediction: sums, acceptance of requests, times of steps.

Summaries of several servers add up to that of a fleet, each server with as large a part of its
requests and steps as every other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptive_spec.bounded_read import DECODE_ERRORS
from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.pool import pool, select
from adaptive_spec.sim.acceptance.recorded import load_npz, served_requests
from adaptive_spec.sim.acceptance.request_rows import RequestRows
from adaptive_spec.sim.advice.observed import Observed, Observer, Sums
from adaptive_spec.sim.hardware.from_trace import STEP_ARRAYS, TimedRows, TimedSteps, joined
from adaptive_spec.sim.step_trace import RecordedStep, Source, find_trace
from adaptive_spec.step import FloatArray

SUFFIX = ".summary.npz"
SCHEMA = 1
ARRAYS = "accepted", "offsets", "prompt_tokens"
MAYBE = "proposed", "tree_sizes", "confidence", "record_temperature"
"""Arrays of acceptance, those that are always there and others."""


@dataclass(frozen=True, eq=False)
class Summary:
    """Summary of the traces of one or more servers.

    Attributes:
        name: of the trace, for people.
        sums: over all steps.
        acceptance: of every `stride`-th request.
        stride: of so many requests, one is kept.
        steps: their times.
    """

    name: str
    sums: Sums
    acceptance: AcceptanceData
    stride: int
    steps: TimedSteps

    def observed(self) -> Observed:
        """Return what the trace shows."""
        return self.sums.observed(self.acceptance)


class Summarizer:
    """Makes the summary of a trace, step by step.

    Args:
        most_rows: steps of requests that are kept; None: as many as one prediction can use.
        most_steps: step times that are kept, likewise.
    """

    def __init__(self, most_rows: int | None = None, most_steps: int | None = None) -> None:
        self._observer = Observer()
        self._rows = RequestRows(most_rows=most_rows)
        self._steps = TimedRows(most_steps)

    def add(self, step: RecordedStep) -> None:
        """Add a step."""
        self._observer.add(step)
        self._steps.add(step)
        self._rows.add(step)

    def summary(self, name: str, *, seed: int) -> Summary:
        """Return the summary of the steps so far.

        Args:
            name: of the trace, for people.
            seed: of the draws that continue runs of accepted drafts.

        Raises DataError, which names the trace, without measured steps or verified drafts.
        """
        sums = self._observer.sums()
        if not sums.whole.steps:
            raise DataError(f"{name}: no measured decode steps")
        return Summary(
            name=name,
            sums=sums,
            acceptance=served_requests(self._rows, name, depth=sums.kmax, seed=seed),
            stride=self._rows.stride,
            steps=self._steps.steps(),
        )


def summarize(source: Source, *, seed: int = 0) -> Summary:
    """Read the traces of one server's set-up.

    Raises DataError naming file and step, or what the traces lack.
    """
    trace = find_trace(source)
    made = Summarizer()
    for step in trace.steps():
        made.add(step)
    return made.summary(trace.name, seed=seed)


def observe(source: Source, *, seed: int = 0) -> Observed:
    """Return what the traces of one server's set-up show. Raises as `summarize`."""
    return summarize(source, seed=seed).observed()


def together(parts: Sequence[Summary], *, seed: int = 0) -> Summary:
    """Return the summary of several servers with the same Kmax."""
    if len(parts) == 1:
        return parts[0]
    stride = max(part.stride for part in parts)
    thinned = [
        select(part.acceptance, np.arange(0, part.acceptance.records, stride // part.stride))
        for part in parts
    ]
    return Summary(
        name=", ".join(part.name for part in parts),
        sums=reduce(add, (part.sums for part in parts)),
        acceptance=pool(thinned, seed=seed),
        stride=stride,
        steps=joined([part.steps for part in parts]),
    )


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of a summary that is no array."""

    schema: int
    name: str
    sums: Sums
    stride: Annotated[int, msgspec.Meta(ge=1)]
    source: str
    labels: list[str]
    depth: int
    temperature: float
    sources: tuple[str, ...]
    skipped: int
    pool_tokens: int | None
    step_stride: Annotated[int, msgspec.Meta(ge=1)]


def save(summary: Summary, path: Path) -> None:
    """Write a summary; the same summary is the same bytes."""
    data, steps = summary.acceptance, summary.steps
    head = _Head(
        schema=SCHEMA,
        name=summary.name,
        sums=summary.sums,
        stride=summary.stride,
        source=data.source,
        labels=list(data.labels),
        depth=data.depth,
        temperature=data.temperature,
        sources=steps.sources,
        skipped=steps.skipped,
        pool_tokens=steps.pool_tokens,
        step_stride=steps.stride,
    )
    arrays = {"head": np.frombuffer(msgspec.json.encode(head), dtype=np.uint8)}
    arrays |= {name: getattr(data, name) for name in ARRAYS}
    arrays |= {name: each for name in MAYBE if (each := getattr(data, name)) is not None}
    arrays |= {f"step_{name}": getattr(steps, name) for name in STEP_ARRAYS}
    spare = path.with_name(f".{path.name}.new")
    with spare.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    spare.replace(path)


def load(path: Path) -> Summary:
    """Read a summary. Raises DataError, which names the file and what is wrong."""
    columns = [f"step_{name}" for name in STEP_ARRAYS]
    arrays = load_npz(path, ("head", *ARRAYS, *columns), optional=MAYBE)
    try:
        head = msgspec.json.decode(arrays["head"].tobytes(), type=_Head)
        if head.schema != SCHEMA:
            raise ValueError(f"schema {head.schema}, not {SCHEMA}")
        times = {name: _floats(arrays[f"step_{name}"]) for name in STEP_ARRAYS}
        if len({len(each) for each in times.values()}) != 1:
            raise ValueError("columns of steps differ in length")
        accepted, offsets, prompts = (arrays[name] for name in ARRAYS)
        data = AcceptanceData(
            name=head.name,
            source=head.source,
            accepted=accepted.astype(np.uint8),
            offsets=offsets.astype(np.int64),
            prompt_tokens=prompts.astype(np.int64),
            labels=tuple(head.labels),
            depth=head.depth,
            temperature=head.temperature,
            proposed=arrays.get("proposed"),
            tree_sizes=arrays.get("tree_sizes"),
            confidence=arrays.get("confidence"),
            record_temperature=arrays.get("record_temperature"),
        )
        steps = TimedSteps(
            **times,
            sources=head.sources,
            skipped=head.skipped,
            pool_tokens=head.pool_tokens,
            stride=head.step_stride,
        )
        if not head.sums.whole.steps:
            raise ValueError("no measured decode steps")
    except (*DECODE_ERRORS, IndexError, TypeError) as error:
        said = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: not a summary of a trace: {said}") from error
    return Summary(head.name, head.sums, data, head.stride, steps)


def _floats(array: NDArray[Any]) -> FloatArray:
    if array.ndim != 1 or array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError("a column of steps is not finite numbers")
    if (array < 0.0).any():
        raise ValueError("a column of steps has numbers below 0")
    return array
