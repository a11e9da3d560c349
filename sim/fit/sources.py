"""Recorded steps to fit to: step traces, npz records and acceptance lists as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.operation.segments import is_trace_place, read_trace
from adaptive_spec.sim.acceptance.data import AcceptanceData, steps_of
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.recorded import is_npz, load_recorded_npz
from adaptive_spec.sim.step_trace import find_trace, read_request_steps
from adaptive_spec.step import FloatArray, IntArray, Mode, StepOutcome


@dataclass(frozen=True, eq=False)
class Steps:
    """S steps of R requests, those of a request in order.

    Attributes:
        request: [S] 0..R - 1.
        verified: [S] drafts verified, K.
        accepted: [S] 0..verified.
        confidence: [S, P] maximum draft probability at each position; nan where unknown.
    """

    request: IntArray
    verified: IntArray
    accepted: IntArray
    confidence: FloatArray

    @property
    def requests(self) -> int:
        """R."""
        return int(self.request.max(initial=-1)) + 1

    @property
    def seen(self) -> IntArray:
        """[S] observed drafts: up to the first rejection within K."""
        return np.minimum(self.accepted + 1, self.verified)

    def of_requests(self, chosen: IntArray) -> Steps:
        """Return the steps of these requests, numbered anew in the order given."""
        number = np.full(self.requests, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        rows = number[self.request] >= 0
        return Steps(
            number[self.request[rows]],
            self.verified[rows],
            self.accepted[rows],
            self.confidence[rows],
        )


def joined(parts: Sequence[Steps]) -> Steps:
    """All steps of several tables; requests are numbered on."""
    width = max(part.confidence.shape[1] for part in parts)
    first = np.cumsum([0, *(part.requests for part in parts)])
    return Steps(
        np.concatenate([part.request + n for part, n in zip(parts, first, strict=False)]),
        np.concatenate([part.verified for part in parts]),
        np.concatenate([part.accepted for part in parts]),
        np.concatenate([_widened(part.confidence, width) for part in parts]),
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
    if not path.exists() and not is_trace_place(path):
        raise DataError(f"{path}: no such file or folder")
    if _is_trace(path):
        return traced_steps(path)
    if path.is_file() and is_npz(path):
        rows = load_recorded_npz(path)
        every = np.full(len(rows.accepted), rows.confidence.shape[1], dtype=np.int64)
        return TracedSteps(Steps(rows.request, every, rows.accepted, rows.confidence), [])
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
    confidence = np.full((len(at), data.depth), np.nan)
    if data.confidence is not None:
        confidence = data.confidence[at].astype(np.float64)
    return Steps(request, drawn[at], accepted, confidence)


def _is_trace(path: Path) -> bool:
    """A folder with segments, or a file whose first line is a step record."""
    if is_trace_place(path):
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
    confidence = np.full((len(rows), deepest), np.nan)
    for row, (_, step, place) in zip(confidence, rows, strict=True):
        if step.confidence is not None:
            own = np.array(step.confidence[place][:deepest], dtype=np.float64)  # None becomes nan
            row[: len(own)] = own
    steps = Steps(
        request=np.array([request for request, _, _ in rows], dtype=np.int64),
        verified=np.array([step.k[place] for _, step, place in rows], dtype=np.int64),
        accepted=np.array([step.accepted[place] for _, step, place in rows], dtype=np.int64),
        confidence=confidence,
    )
    return TracedSteps(steps, times)
