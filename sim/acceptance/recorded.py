"""Recorded steps with known K: step traces of adapters and the simulator, and npz files.

Both are imputed at every output position (`adaptive_spec.sim.acceptance.imputation`).
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.bounded_read import open_regular
from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import DEEPEST, AcceptanceData
from adaptive_spec.sim.acceptance.imputation import RecordedSteps, impute
from adaptive_spec.sim.acceptance.request_rows import RequestRows
from adaptive_spec.sim.step_trace import find_trace
from adaptive_spec.step import IntArray

_MOST_BYTES = 1 << 31
"""Size of the arrays of an npz file that is read, unpacked."""


def read_step_trace(
    path: str | os.PathLike[str], *, depth: int | None = None, seed: int = 0
) -> AcceptanceData:
    """Acceptance, and confidence where it is there, from a step trace, one record per request.

    A step with K = 0 says nothing about drafts: its token continues runs by a draw, as any fully
    accepted step's does. So a trace of a policy that was mostly off is mostly imputed; `source`
    gives the share. Where an n-gram drafter had nothing to propose, `available` tells that from a
    decision; a trace of an older version lacks it, which overstates such a drafter.

    Args:
        path: a folder with ``steps-*.jsonl``, in it or in its folders, plain or gzip, or one such
            file; format: `adaptive_spec.operation.trace`.
        depth: drafts known at each position; None: the largest K.
        seed: of the draws that continue runs.

    Raises DataError naming file and row or step, and what is wrong.
    """
    trace, rows = find_trace(Path(path)), RequestRows()
    for step in trace.steps():
        rows.add(step)
    return _acceptance(rows, trace.name, depth, seed)


def served_requests(rows: RequestRows, name: str, *, depth: int, seed: int) -> AcceptanceData:
    """Return the acceptance of rows of a trace of this name, with prompt lengths and task labels.

    Otherwise as `read_step_trace`.
    """
    prompts = np.array([each.prompt_tokens for each in rows.first], dtype=np.int64)
    labels = tuple(each.label for each in rows.first)
    data = _acceptance(rows, name, depth, seed)
    return replace(data, prompt_tokens=prompts, labels=labels)


def _acceptance(rows: RequestRows, name: str, depth: int | None, seed: int) -> AcceptanceData:
    recorded = rows.steps(name)
    if not recorded.verified.any():
        raise DataError(f"{name}: no step verified a draft; record one with speculation on")
    kind = "step trace"
    if rows.stride > 1:
        kind += f", {len(rows.first):,} of {rows.found:,} requests"
    temperatures = np.array([each.temperature for each in rows.first])
    data = imputed_data(
        recorded,
        Path(name),
        kind,
        depth=depth,
        seed=seed,
        temperature=float(temperatures.max()),
    )
    if (temperatures == temperatures[0]).all():
        return data
    return replace(data, record_temperature=temperatures)


def load_recorded_npz(file: Path) -> tuple[RecordedSteps, tuple[str, ...] | None]:
    """Return the steps of an npz file as `read_recorded_npz` describes it, and its task labels.

    Raises DataError naming file, row (from 0, as in the array) and what is wrong.
    """
    arrays = load_npz(file, ("accepted", "request", "max_prob"), optional=("label",))
    accepted = _whole_numbers(file, "accepted", arrays["accepted"])
    request = _whole_numbers(file, "request", arrays["request"])
    confidence = arrays["max_prob"]
    if not len(accepted):
        raise DataError(f"{file}: empty; expected one row per step")
    if confidence.ndim != 2 or confidence.dtype.kind != "f" or not confidence.shape[1]:
        raise DataError(f"{file}: max_prob must be floats [steps, K]")
    if not len(accepted) == len(request) == len(confidence):
        raise DataError(
            f"{file}: accepted has {len(accepted)} rows, request {len(request)}, max_prob "
            f"{len(confidence)}; the file is not whole"
        )
    draft_tokens = confidence.shape[1]
    _first_bad(file, "accepted", (accepted < 0) | (accepted > draft_tokens), accepted)
    outside: NDArray[np.bool_] = np.any((confidence < 0) | (confidence > 1), axis=1)
    _first_bad(file, "max_prob", outside, confidence)
    order = np.argsort(request, kind="stable")
    numbers, lengths = np.unique(request, return_counts=True)
    steps = RecordedSteps(
        verified=np.full(len(accepted), draft_tokens, dtype=np.int64),
        accepted=accepted[order],
        emitted=accepted[order] + 1,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        confidence=confidence[order].astype(np.float32),
    )
    return steps, _labels(file, arrays["label"], numbers) if "label" in arrays else None


def read_recorded_npz(
    path: str | os.PathLike[str], *, depth: int | None = None, seed: int = 0
) -> AcceptanceData:
    """Acceptance and confidence from an npz file of steps, one record per request.

    Args:
        path: npz with ``accepted`` [S] whole numbers 0..K, ``request`` [S] whole numbers (steps in
            order within a request) and ``max_prob`` [S, K], the maximum draft probability at each
            position; K drafts were verified at every step. ``label`` [R], if it is there, holds
            the task labels of requests 0..R - 1. A name that ends in ``_t`` and a number, as in
            ``code_t0.8.npz``, says the target's temperature.
        depth: drafts known at each position; None: K.
        seed: of the draws that continue runs past K.

    Raises DataError as `load_recorded_npz` does.
    """
    file = Path(path)
    steps, labels = load_recorded_npz(file)
    named = re.search(r"_t(\d+(?:\.\d+)?)$", file.stem)
    data = imputed_data(
        steps,
        file,
        f"recorded steps, K = {steps.verified[0]}",
        depth=depth,
        seed=seed,
        temperature=float(named[1]) if named else 0.0,
    )
    return data if labels is None else replace(data, labels=labels)


def imputed_data(
    steps: RecordedSteps,
    source: Path,
    kind: str,
    *,
    depth: int | None,
    seed: int,
    temperature: float = 0.0,
) -> AcceptanceData:
    """Acceptance at every position of recorded steps; `kind` says what they are, for people."""
    depth = min(int(steps.verified.max()), DEEPEST) if depth is None else depth
    imputed = impute(steps, depth, np.random.default_rng(seed))
    records = len(imputed.offsets) - 1
    name = Path(source.name.removesuffix(".gz")).stem
    return AcceptanceData(
        name=name,
        source=f"{source.name}: {kind}; positions inside steps and beyond K imputed, "
        f"{imputed.open_ends:.1%} of steps accepted all K",
        accepted=imputed.accepted,
        offsets=imputed.offsets,
        prompt_tokens=np.zeros(records, dtype=np.int64),
        labels=(name,) * records,
        depth=depth,
        confidence=imputed.confidence,
        temperature=temperature,
        proposed=imputed.proposed,
    )


def is_npz(file: Path) -> bool:
    """Return whether a file is an archive, as npz files are. Raises DataError."""
    try:
        with open_regular(file) as stream:
            return stream.read(2) == b"PK"
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error


def load_npz(
    file: Path, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, NDArray[Any]]:
    """Return these arrays of an npz file, without pickles. Raises DataError."""
    try:
        # Opened here: numpy leaves a file open that is not an archive.
        with open_regular(file) as stream, np.load(stream, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(f"{file}: a single array, expected an npz file")
            size = sum(member.file_size for member in archive.zip.infolist())
            if size > _MOST_BYTES:
                raise DataError(f"{file}: holds {size:,} bytes, at most {_MOST_BYTES:,} are read")
            missing = [name for name in names if name not in archive.files]
            if missing:
                known = ", ".join(archive.files) or "none"
                raise DataError(f"{file}: no array {', '.join(missing)}; arrays there are: {known}")
            there = (*names, *(name for name in optional if name in archive.files))
            return {name: archive[name] for name in there}
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error
    except Exception as error:  # whatever its compressor or its headers lead to
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(f"{file}: not a readable npz file: {reason}") from error


def _labels(file: Path, labels: NDArray[Any], numbers: IntArray) -> tuple[str, ...]:
    """Return the labels of the requests with these numbers."""
    if labels.ndim != 1 or labels.dtype.kind != "U":
        raise DataError(f"{file}: label must be one text per request, is {labels.dtype}")
    if numbers[0] < 0 or numbers[-1] >= len(labels):
        raise DataError(
            f"{file}: label names requests 0 to {len(labels) - 1}, request has "
            f"{numbers[0]} to {numbers[-1]}"
        )
    return tuple(labels[numbers].tolist())


def _whole_numbers(file: Path, name: str, array: NDArray[Any]) -> IntArray:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{file}: {name} must be one whole number per step, is {array.dtype} "
            f"with shape {array.shape}"
        )
    return array.astype(np.int64)


def _first_bad(file: Path, name: str, bad: NDArray[np.bool_], values: NDArray[Any]) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{file}: row {row}: {name} is {values[row].tolist()}, out of range")
