"""Record what a validation found, for docs/simulator.md and `sim/hardware/validity.json`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.sim.hardware import validity
from adaptive_spec.sim.hardware.validity import Validity
from benchmarks.validation.at_load import published
from benchmarks.validation.row import Check, Row

RECORD = Path(__file__).with_name("results.json")
_LOAD = re.compile(r"batch (\d+)|(\d+) (?:clients|requests)")
_QUANTILE = 0.9

Cell = tuple[str, str, int, float, float, bool]
"""Part of the table, label, requests at once (0: not told), published, simulated, counted."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it came out.

    Attributes:
        table: its name.
        title: what was measured.
        passed: every check has.
        checks: demand, what came out, and whether that is enough.
        cells: its rows.
    """

    table: str
    title: str
    passed: bool
    checks: tuple[tuple[str, str, bool], ...]
    cells: tuple[Cell, ...]


def write_record(reproduced: Sequence[Recorded]) -> None:
    """Replace the tables that were reproduced now, and what profiles are known to be off by."""
    found = {table.table: table for table in read_record()} if RECORD.is_file() else {}
    found |= {table.table: table for table in reproduced}
    tables = [table for _, table in sorted(found.items())]
    lines = ",\n".join(msgspec.json.encode(table).decode() for table in tables)
    RECORD.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    write_validity(tables)


def read_record() -> tuple[Recorded, ...]:
    """Return what was recorded last."""
    return msgspec.json.decode(RECORD.read_bytes(), type=tuple[Recorded, ...])


def recorded(table: str, title: str, rows: Sequence[Row], checks: Sequence[Check]) -> Recorded:
    """Return what is kept of a table; one without checks does not pass."""
    return Recorded(
        table=table,
        title=title,
        passed=bool(checks) and all(check.passed for check in checks),
        checks=tuple((check.demand, check.found, check.passed) for check in checks),
        cells=tuple(_cell(row) for row in rows),
    )


def _cell(row: Row) -> Cell:
    found = _LOAD.search(row.label)
    load = int(found.group(1) or found.group(2)) if found else 0
    return (
        row.table,
        row.label,
        load,
        round(row.published, 4),
        round(row.simulated, 4),
        row.counted,
    )


def write_validity(tables: Sequence[Recorded]) -> None:
    """Say in `validity.json` how far off each profile of V9 was, and in which range."""
    cells = [cell for table in tables if table.table == "V9" for cell in table.cells]
    validated = [table for table in published() if table.role == "validate"]
    found: dict[str, Validity] = {}
    for name in dict.fromkeys(each for table in validated for each in table.profiles):
        of_profile = [table for table in validated if name in table.profiles]
        names = {table.name_on(name) for table in of_profile}
        mine = [cell for cell in cells if cell[0] in names and "K = " in cell[1]]
        if not mine or name.endswith(".json"):  # a file here: no user has that profile
            continue
        errors = np.array([simulated / there - 1.0 for *_, there, simulated, _ in mine])
        clients = [cell[2] for cell in mine]
        _, engine, drafter, _ = of_profile[0].name.split(", ", 3)
        found[name] = Validity(
            engine=engine,
            drafter=drafter,
            clients=(min(clients), max(clients)),
            context=(
                min(table.prompt_tokens for table in of_profile),
                max(table.prompt_tokens + table.output_tokens for table in of_profile),
            ),
            k=max(row[1] for table in of_profile for row in table.rows),
            cells=len(mine),
            mean_error=round(float(errors.mean()), 3),
            error=round(float(np.quantile(np.abs(errors), _QUANTILE)), 3),
        )
    validity.FILE.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
