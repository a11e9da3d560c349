"""Loader of acceptance data from files of any known format, recognised by content."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS
from adaptive_spec.errors import DataError
from adaptive_spec.operation.segments import is_trace_place
from adaptive_spec.sim.acceptance.data import DEEPEST, AcceptanceData
from adaptive_spec.sim.acceptance.hazard import PREFIX, generate, load_hazard_model, shipped_model
from adaptive_spec.sim.acceptance.per_position import lists_of, read_per_position
from adaptive_spec.sim.acceptance.pool import pool
from adaptive_spec.sim.acceptance.recorded import is_npz, read_recorded_npz, read_step_trace
from adaptive_spec.sim.acceptance.records import PREFIX as RECORD
from adaptive_spec.sim.acceptance.records import shipped_record
from adaptive_spec.sim.acceptance.two_sources import names_two_sources, shipped_two_sources
from adaptive_spec.sim.text_rows import read_lines

_FORMATS = (
    "per-position lists (JSON lines), a step trace, an npz of recorded steps, a hazard model (JSON)"
)


def load_acceptance(
    paths: Sequence[Path | str],
    *,
    drafter_list: str,
    seed: int,
    kmax: int,
) -> AcceptanceData:
    """Acceptance data of one or several sources, pooled; `depth` of the result is `kmax`.

    Args:
        paths: files, folders with ``steps-*.jsonl``, ``model:NAME`` or ``record:NAME`` for a model
            or a record that comes with the package. Records of several are interleaved in an
            order drawn by the seed.
        drafter_list: which list of per-position files, such as ``eagle`` or ``ngram``.
        seed: of models, of draws that continue recorded runs, and of the interleaving.
        kmax: largest K that will be replayed, 1..254.

    Records are labelled with the file's own task label where it has one, else with the name of
    file or model. Raises DataError naming the file, the row and what is wrong.
    """
    if not paths:
        raise DataError("no acceptance data given; name a file, or model:good")
    if not 1 <= kmax <= DEEPEST:
        raise DataError(f"K of acceptance data must be 1..{DEEPEST}, got {kmax}")
    parts = [
        _labelled(_load(str(path), drafter_list, seed + number, kmax))
        for number, path in enumerate(paths)
    ]
    return pool(parts, seed=seed)


def _load(
    path: str,
    drafter_list: str,
    seed: int,
    kmax: int,
) -> AcceptanceData:
    if path.startswith(PREFIX):
        return generate(shipped_model(path.removeprefix(PREFIX)), depth=kmax, seed=seed)
    if path.startswith(RECORD):
        name = path.removeprefix(RECORD)
        if names_two_sources(name):
            return shipped_two_sources(name, drafter_list, depth=kmax)
        return shipped_record(name, depth=kmax, seed=seed)
    file = Path(path)
    if is_trace_place(file):
        return read_step_trace(file, depth=kmax, seed=seed)
    if is_npz(file):
        return read_recorded_npz(file, depth=kmax, seed=seed)
    row = _first_row(file)
    if row is None or row.get("kind") == "hazard-model" or "position_logits" in row:
        return generate(load_hazard_model(file), depth=kmax, seed=seed)
    if {"ids", "k", "emitted"} <= row.keys():
        return read_step_trace(file, depth=kmax, seed=seed)
    if lists_of(row):
        return read_per_position(file, drafter_list, depth=kmax)
    raise DataError(
        f"{file}: row 1 has {', '.join(row) or 'no fields'}: not acceptance data; known are "
        f"{_FORMATS}"
    )


def _labelled(data: AcceptanceData) -> AcceptanceData:
    return replace(data, labels=tuple(label or data.name for label in data.labels))


def _first_row(file: Path) -> dict[str, Any] | None:
    """The first line as an object; None if a JSON object over several lines begins with it."""
    with closing(read_lines(file)) as lines:
        _, line = next(lines, (0, b""))
    if not line:
        raise DataError(f"{file}: empty; known are {_FORMATS}")
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except DECODE_ERRORS as error:
        if line.strip() == b"{":
            return None
        raise DataError(
            f"{file}: row 1 is not a JSON object ({error}); known are {_FORMATS}"
        ) from error
