"""All tables of published measurements, and a verdict on each."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.errors import ConfigError
from benchmarks.validation.row import Check, Row, cells_within

MODULES = {
    "V1": "leviathan",
    "V2": "eagle3_by_batch",
    "V8": "no_speculation",
    "V9": "at_load",
}

_PACKAGE = "benchmarks.validation"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A table, reproduced.

    Attributes:
        table: its name, such as ``V2``.
        title: what was measured, and where it is published.
        passed: every check has.
        checks: what it must show.
        rows: published, simulated and error.
    """

    table: str
    title: str
    passed: bool
    checks: tuple[Check, ...]
    rows: tuple[Row, ...]


def table_names(asked: Sequence[str]) -> list[str]:
    """The tables asked for, in order; all of them if none is named.

    Raises ConfigError for a name that does not exist.
    """
    wanted = [name.strip().upper() for text in asked for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in MODULES:
            raise ConfigError(f"no table {name!r}: there are {', '.join(MODULES)}")
    return [name for name in MODULES if not wanted or name in wanted]


def reproduce(name: str, data_folder: Path) -> Verdict:
    """Simulate one table and judge it. Raises DataError if a file is missing or damaged."""
    module: Any = importlib.import_module(f"{_PACKAGE}.{MODULES[name]}")
    rows = module.rows(data_folder)
    judge = getattr(module, "checks", None)
    return judged(name, module.TITLE, rows, judge(rows) if judge else None)


def judged(name: str, title: str, rows: list[Row], checks: list[Check] | None = None) -> Verdict:
    """The verdict on these rows; a table without checks of its own bounds every cell."""
    if checks is None:
        checks = [cells_within(rows)]
    passed = bool(checks) and all(check.passed for check in checks)
    return Verdict(table=name, title=title, passed=passed, checks=tuple(checks), rows=tuple(rows))
