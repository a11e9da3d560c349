"""Results of many conditions in one small file.

A collection keeps of each condition how it was measured and the counts of its cells, as columns.
Tables, ratios and noise are computed again from the cells when the file is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from .cells import Cell
from .errors import BenchmarkError

ABOUT = ("date", "command", "environment", "condition")
COLUMNS = (
    "arm",
    "concurrency",
    "repeat",
    "seconds",
    "tokens",
    "finished",
    "steps",
    "request_steps",
    "drafted",
    "accepted",
    "others_cpu",
    "beside",
)
"""Counts that are kept of a cell. Its clock, its kinds of prompt and its tables are not."""


def collect(paths: Iterable[Path], series: str) -> list[dict[str, Any]]:
    """Entries of a collection, one for each result file of ``vllm_cpu.py``.

    Raises:
        BenchmarkError: for a file of another benchmark, or with faults of adaptive-spec.
    """
    entries = []
    for path in sorted(paths):
        try:
            saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            cells = msgspec.convert(saved["cells"], list[Cell])
            about = {key: saved[key] for key in ABOUT}
        except (KeyError, TypeError, ValueError) as error:
            raise BenchmarkError(f"{path}: no results of vllm_cpu.py ({error})") from error
        if any((cell.plugin or {}).get("fail_opens") for cell in cells):
            raise BenchmarkError(f"{path}: adaptive-spec failed in a cell; measure it again")
        columns = {name: [_short(getattr(cell, name)) for cell in cells] for name in COLUMNS}
        entries.append({"series": series, **about, "cells": columns})
    return entries


def save(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    """Write a collection, one line for each condition."""
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def conditions(content: Any, series: str | None) -> Iterator[tuple[Any, list[Any]]]:
    """Condition and cells, JSON-compatible, of a collection or of one result file."""
    if not isinstance(content, list):
        yield content["condition"], content["cells"]
        return
    for entry in content:
        if series in (None, entry["series"]):
            columns = entry["cells"]
            rows = zip(*columns.values(), strict=True)
            cells = [dict(zip(columns, row, strict=True)) for row in rows]
            yield entry["condition"], [_whole(cell) for cell in cells]


def _whole(cell: dict[str, Any]) -> dict[str, Any]:
    return {**cell, "began": 0.0, "ended": cell["seconds"], "by_kind": {}}


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
