"""Results of a sweep: one row per cell and policy, oracles included, as JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from adaptive_spec import __version__
from adaptive_spec.bounded_read import DECODE_ERRORS, read_small_file
from adaptive_spec.errors import DataError
from adaptive_spec.sim.line_file import write_whole
from adaptive_spec.sim.result import Result
from adaptive_spec.sim.sweep.cells import Cell, CellName, gpus
from adaptive_spec.sim.sweep.config import SweepConfig
from adaptive_spec.sim.sweep.input_files import RUNS
from adaptive_spec.sim.sweep.store import RESULTS_CSV, RESULTS_JSON
from adaptive_spec.sim.sweep.task import Outcome, RunKey

Kind = Literal["policy", "static", "foresight"]

_MOST_BYTES = 1 << 28
"""Size of a results.json that is read; some hundred thousand rows."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A policy, or an oracle, on one cell.

    Attributes:
        cell: where.
        kind: `policy`, or one of the oracles: each fixed K, or foresight.
        closed: the load is a closed loop and throughput the score; otherwise TPOT is.
        gpus: that share the model.
        result: what was measured; with regret where the oracles have run.
    """

    cell: CellName
    kind: Kind
    closed: bool
    gpus: int
    result: Result


class Failure(msgspec.Struct, frozen=True):
    """A run that came to nothing.

    Attributes:
        cell: where.
        policy: which; `oracles` for those.
        error: one line.
    """

    cell: CellName
    policy: str
    error: str


class SweepResults(msgspec.Struct, frozen=True, kw_only=True):
    """All that a sweep has measured.

    Attributes:
        schema: version of the format.
        version: of this package.
        config: what was asked for.
        rows: in the order of cells; policies as configured, then fixed K, then foresight.
        failures: runs that came to nothing.
    """

    schema: Literal[1] = 1
    version: str
    config: SweepConfig
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...] = ()


def collect(
    config: SweepConfig,
    cells: tuple[Cell, ...],
    finished: Mapping[RunKey, Outcome],
    failures: tuple[Failure, ...],
) -> SweepResults:
    """Put the finished runs in order, each held against the oracles of its cell."""
    rows: list[Row] = []
    machines = {cell.scenario.hardware: gpus(cell.scenario.hardware) for cell in cells}
    for cell in cells:
        outcome = finished.get((cell.name, None))
        oracles = outcome.oracles if outcome is not None else None
        found: list[tuple[Kind, Result]] = []
        for entry in config.policy_entries():
            run = finished.get((cell.name, entry.label))
            if run is not None and run.result is not None:
                found.append(("policy", run.result))
        if oracles is not None:
            found += [("static", result) for result in oracles.static]
            if oracles.foresight is not None:
                found.append(("foresight", oracles.foresight))
        closed = cell.scenario.closed if oracles is None else oracles.closed
        rows += [
            Row(
                cell=cell.name,
                kind=kind,
                closed=closed,
                gpus=machines[cell.scenario.hardware],
                result=result if oracles is None else oracles.held_against(result),
            )
            for kind, result in found
        ]
    return SweepResults(version=__version__, config=config, rows=tuple(rows), failures=failures)


def write_results(results: SweepResults, directory: Path) -> None:
    """Write results.json, and results.csv with nested fields as columns."""
    write_whole(directory / RESULTS_JSON, msgspec.json.encode(results) + b"\n")
    rows = [flat(row) for row in results.rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_whole(directory / RESULTS_CSV, text.getvalue().encode())


def flat(row: Row) -> dict[str, Any]:
    """Return a row as columns."""
    columns: dict[str, Any] = msgspec.to_builtins(row.cell)
    columns |= {"kind": row.kind, "closed": row.closed, "gpus": row.gpus}
    _flatten(msgspec.to_builtins(row.result), "", columns)
    return columns


def read_results(path: Path) -> SweepResults:
    """Read results.json, given itself or its directory.

    Raises DataError if it is missing, damaged or of another format.
    """
    file = path / RESULTS_JSON if path.is_dir() else path
    if not file.exists():
        hint = "a sweep that has not finished: give the same `adaptive-spec sweep` command again"
        if not (path / RUNS).exists():
            hint = "give the directory that `adaptive-spec sweep` has written"
        raise DataError(f"no {RESULTS_JSON} in {str(path)!r}; {hint}")
    try:
        results = msgspec.json.decode(read_small_file(file, _MOST_BYTES), type=SweepResults)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from error
    except DECODE_ERRORS as error:
        raise DataError(
            f"{file}: not results of a sweep ({error}); make them again with `adaptive-spec sweep`"
        ) from error
    if not results.rows:
        raise DataError(f"{file}: holds no results; every run of the sweep failed")
    return results


def _flatten(value: Mapping[str, Any], prefix: str, into: dict[str, Any]) -> None:
    for key, item in value.items():
        if isinstance(item, dict):
            _flatten(item, f"{prefix}{key}_", into)
        elif not (prefix == "" and key == "regret"):
            into[f"{prefix}{key}"] = item
