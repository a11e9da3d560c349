"""Reader of steps to fit to: step traces, npz records and acceptance lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.recorded import is_npz, load_recorded_npz
from adaptive_spec.sim.acceptance.step_statistics import steps_of
from adaptive_spec.sim.fit.steps import Steps
from adaptive_spec.sim.fit.trace_steps import TracedSteps, is_trace, read_traced_steps
from adaptive_spec.step import IntArray


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
    if is_trace(path):
        return read_traced_steps(path)
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
