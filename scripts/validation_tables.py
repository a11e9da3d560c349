"""Tables of docs/simulator.md, from what `python -m benchmarks.validation --record` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parent.parent / "benchmarks/validation/results.json"
LOADS = ((1, 1), (2, 8), (9, 31), (32, 63), (64, 1 << 30))
"""Requests at once that share a column."""
DEFAULT = "h100-llama-8b"
"""The default profile, which is held against rows of V9 that another one is judged by."""
LEFT_OUT = ("V8",)
"""Not in the sum: step times without drafts."""


def sections() -> dict[str, str]:
    """Every generated table, by the name of its section."""
    tables = json.loads(RECORD.read_text(encoding="utf-8"))
    return {"loads": by_load(tables)}


def by_load(tables: Sequence[dict[str, Any]]) -> str:
    """Mean signed and mean absolute error by table and load, rows fitted on left out."""
    names = ["1", "2 to 8", "9 to 31", "32 to 63", "64 and more"]
    head = ["| table | part | cells | within 10 % |", *(f" {name} |" for name in names)]
    lines = ["".join(head), "| --- " * (4 + len(names)) + "|"]
    for table in tables:
        for part in dict.fromkeys(cell[0] for cell in table["cells"]):
            mine = [cell for cell in table["cells"] if cell[0] == part and cell[5] and cell[2]]
            if mine:
                label = "" if part == table["table"] else part
                lines.append(f"| {table['table']} | {label} | {_row(mine)} |")
    drafts = [
        cell
        for table in tables
        if table["table"] not in LEFT_OUT
        for cell in table["cells"]
        if cell[5] and cell[2]
    ]
    lines.append(f"| V2, V9 | together | {_row(drafts)} |")
    if default := [cell for table in tables for cell in _of_default(table)]:
        lines.append(f"| V9 | the H100's cells with `{DEFAULT}`, not counted | {_row(default)} |")
    return "\n".join(lines)


def _of_default(table: dict[str, Any]) -> list[Sequence[Any]]:
    """The cells of a table with the default profile, where the table's own are counted."""
    counted = {cell[0] for cell in table["cells"] if cell[5]}
    suffix = f", {DEFAULT}"
    return [
        cell
        for cell in table["cells"]
        if cell[0].endswith(suffix) and cell[0].removesuffix(suffix) in counted
    ]


def _row(cells: Sequence[Sequence[Any]]) -> str:
    errors = [_error(cell) for cell in cells]
    inside = sum(abs(error) <= 0.1 for error in errors) / len(errors)
    found = [f"{len(errors)}", f"{inside:.0%}"]
    for low, high in LOADS:
        of_load = [_error(cell) for cell in cells if low <= cell[2] <= high]
        found.append(_mean(of_load) if of_load else "")
    return " | ".join(found)


def _mean(errors: Iterable[float]) -> str:
    errors = list(errors)
    signed = sum(errors) / len(errors)
    size = sum(abs(error) for error in errors) / len(errors)
    return f"{signed:+.1%} ({size:.1%})"


def _error(cell: Sequence[Any]) -> float:
    _, _, _, published, simulated, _ = cell
    return simulated / published - 1.0
