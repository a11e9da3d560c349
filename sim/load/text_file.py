"""CSV files of loads, read row by row; errors name file and row."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from adaptive_spec.errors import DataError
from adaptive_spec.sim.text_rows import read_lines

MOST_TOKENS = 10**8
"""A length above this is taken for a damaged file."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table. Its methods raise DataError with file, row and column."""

    path: Path
    number: int
    values: Mapping[str, str]

    def real(self, column: str, *, least: float = 0.0) -> float:
        """A finite number of at least `least`."""
        text = self.values[column]
        try:
            value = float(text)
        except ValueError:
            self.wrong(f"`{column}` is {text!r}, not a number")
        if not math.isfinite(value):
            self.wrong(f"`{column}` is {text!r}, not a finite number")
        if value < least:
            self.wrong(f"`{column}` is {text}, below {least:g}")
        return value

    def tokens(self, column: str) -> int:
        """A number of tokens; 0 becomes 1, since a request has a prompt and emits a token."""
        value = self.real(column)
        if value != int(value):
            self.wrong(f"`{column}` is {self.values[column]}, not a whole number of tokens")
        if value > MOST_TOKENS:
            self.wrong(f"`{column}` is {self.values[column]}, more than {MOST_TOKENS:,} tokens")
        return max(int(value), 1)

    def wrong(self, what: str) -> NoReturn:
        """Raise a DataError that names file and row."""
        raise DataError(f"{self.path}, row {self.number}: {what}")


def header_of(path: Path) -> list[str]:
    """Column names of a CSV file: its first row that is not blank."""
    for _, cells in _cells(path):
        return [cell.strip() for cell in cells]
    raise DataError(f"{path}: the file is empty")


def table_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of a CSV file with a header. Other columns are ignored, blank rows skipped.

    Args:
        path: the file; the header counts as a row.
        columns: columns that must be there.

    Raises DataError for what `read_lines` does, for a missing column, for a row with more or fewer
    cells than the header, and if there are no rows.
    """
    header: list[str] | None = None
    found = False
    for number, cells in _cells(path):
        if header is None:
            header = [cell.strip() for cell in cells]
            missing = [column for column in columns if column not in header]
            if missing:
                raise DataError(
                    f"{path}, row {number}: no column `{missing[0]}`; expected " + ",".join(columns)
                )
            continue
        if len(cells) != len(header):
            raise DataError(f"{path}, row {number}: {len(cells)} cells, {len(header)} expected")
        found = True
        yield Row(path, number, dict(zip(header, cells, strict=True)))
    if not found:
        raise DataError(f"{path}: the file is empty" if header is None else f"{path}: no rows")


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield row number and cells of each row that is not blank."""
    for number, line in read_lines(path):
        try:
            cells = next(csv.reader([line.decode("utf-8-sig")]))
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}, row {number}: not CSV text: {error}") from error
        if any(cell.strip() for cell in cells):
            yield number, cells
