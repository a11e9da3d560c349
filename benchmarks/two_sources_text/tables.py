"""Composed: rows of real tables, given as CSV and answered as JSON."""

from __future__ import annotations

import csv
import io
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.two_sources_text.sample import Sample

ROWS = 8
MOST_COLUMNS = 10


def as_json(wheel: Path, random_: random.Random) -> Iterator[Sample]:
    """Some rows of each table in turn, for ever; half of the answers are indented."""
    tables = list(_tables(wheel))
    while True:
        random_.shuffle(tables)
        for name, rows in tables:
            at = random_.randrange(len(rows) - ROWS)
            chosen = rows[at : at + ROWS]
            text = io.StringIO()
            writer = csv.DictWriter(text, list(chosen[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(chosen)
            indent = random_.choice((None, 2))
            lines = "[" + ",\n ".join(json.dumps(row) for row in chosen) + "]"
            answer = lines if indent is None else json.dumps(chosen, indent=indent)
            prompt = f"Give these rows of {name} as JSON:\n{text.getvalue()}\n"
            yield Sample("json", prompt, answer + "\n")


def _tables(wheel: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Lists of like flat records."""
    with zipfile.ZipFile(wheel) as archive:
        for path in sorted(archive.namelist()):
            name = path.rpartition("/")[2].removesuffix(".json")
            if "/_data/" not in path or not path.endswith(".json"):
                continue
            rows = json.loads(archive.read(path))
            if isinstance(rows, list) and len(rows) > 2 * ROWS and _flat(rows):
                yield name, rows


def _flat(rows: list[Any]) -> bool:
    return all(
        isinstance(row, dict)
        and row.keys() == rows[0].keys()
        and 2 <= len(row) <= MOST_COLUMNS
        and all(not isinstance(value, dict | list) for value in row.values())
        for row in rows
    )
