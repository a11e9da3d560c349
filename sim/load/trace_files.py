"""Public traces of arrivals and lengths, found from their content; errors name file and row.

CSV files have the columns of Azure's LLM inference traces (``TIMESTAMP``, ``ContextTokens``,
``GeneratedTokens``; github.com/Azure/AzurePublicDataset), or seconds instead of dates
(``arrival_s``, ``input_tokens``, ``output_tokens``). JSON lines are Mooncake's: a time in
milliseconds and two lengths (github.com/kvcache-ai/Mooncake, FAST'25 release). The hashes of prefix
blocks are not used: the simulated engine has no prefix cache.
"""

from __future__ import annotations

import csv
import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS
from adaptive_spec.errors import DataError
from adaptive_spec.sim.load.request import MOST_TOKENS, Request
from adaptive_spec.sim.text_rows import read_lines

FORMATS = (
    "CSV with TIMESTAMP,ContextTokens,GeneratedTokens or arrival_s,input_tokens,output_tokens "
    "(Azure), JSON lines with timestamp,input_length,output_length (Mooncake), a directory with a "
    "step trace, or a description in a .yaml file"
)


class LoadFormat(enum.Enum):
    """Formats of load files."""

    AZURE = "azure"
    MOONCAKE = "mooncake"
    STEP_TRACE = "step trace"
    DESCRIPTION = "description"


def format_of(path: Path) -> LoadFormat:
    """The format of an existing file or directory.

    Raises DataError if it is none that can be read, or cannot be read at all.
    """
    if path.is_dir():
        return LoadFormat.STEP_TRACE
    if path.suffix in {".yaml", ".yml"}:
        return LoadFormat.DESCRIPTION
    with closing(read_lines(path)) as lines:
        number, row = next(lines, (0, b""))
    if row.lstrip().startswith(b"{"):
        return _json_lines(path, number, row)
    if is_azure(header_of(path)):
        return LoadFormat.AZURE
    raise DataError(f"{path}, row 1: not a load that can be read; expected {FORMATS}")


def _json_lines(path: Path, number: int, row: bytes) -> LoadFormat:
    try:
        keys = set(msgspec.json.decode(row, type=dict[str, msgspec.Raw]))
    except DECODE_ERRORS as error:
        raise DataError(f"{path}, row {number}: not a JSON object: {error}") from error
    if {"timestamp", "input_length", "output_length"} <= keys:
        return LoadFormat.MOONCAKE
    if {"schema", "step", "ids"} <= keys:
        raise DataError(f"{path}: a segment of a step trace; give its directory")
    raise DataError(f"{path}, row {number}: not a load that can be read; expected {FORMATS}")


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


PUBLISHED = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IN_SECONDS = ("arrival_s", "input_tokens", "output_tokens")


def is_azure(header: Sequence[str]) -> bool:
    """Return whether a CSV file with these columns is of this format."""
    return set(PUBLISHED) <= set(header) or set(IN_SECONDS) <= set(header)


def read_azure(path: Path) -> Iterator[Request]:
    """Requests in order of arrival, the first at 0; ids are row numbers, the header being row 1.

    A length of 0 becomes 1. Constant memory. Raises DataError with file and row.
    """
    arrival, context, generated = PUBLISHED
    dated = arrival in header_of(path)
    if not dated:
        arrival, context, generated = IN_SECONDS
    first: float | datetime | None = None
    last = 0.0
    for row in table_rows(path, (arrival, context, generated)):
        if dated:
            moment = _moment(row)
            # Without `first`, this row is the first.
            since = 0.0 if first is None else _seconds(row, moment, first)
            first = moment if first is None else first
        else:
            seconds = row.real(arrival)
            first = seconds if first is None else first
            assert isinstance(first, float)
            since = seconds - first
        if since < last:
            row.wrong(f"`{arrival}` goes back by {last - since:g} s; sort the file by that column")
        last = since
        yield Request(
            id=str(row.number),
            arrival=since,
            prompt_tokens=row.tokens(context),
            output_tokens=row.tokens(generated),
        )


def _moment(row: Row) -> datetime:
    text = row.values["TIMESTAMP"].strip()
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        row.wrong(f"`TIMESTAMP` is {text!r}, not a date such as 2023-11-16 18:17:03.979")


def _seconds(row: Row, moment: datetime, first: float | datetime) -> float:
    assert isinstance(first, datetime)
    if (moment.tzinfo is None) != (first.tzinfo is None):
        row.wrong("`TIMESTAMP` has a time zone in some rows and none in others")
    return (moment - first).total_seconds()


_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class _Line(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: _Tokens
    output_length: _Tokens


def read_mooncake(path: Path) -> Iterator[Request]:
    """Requests in order of arrival, the first at 0; ids are row numbers, from 1.

    A length of 0 becomes 1. Constant memory. Raises DataError with file and row.
    """
    decoder = msgspec.json.Decoder(_Line)
    first: float | None = None
    last = 0.0
    for number, text in read_lines(path):
        try:
            line = decoder.decode(text)
        except DECODE_ERRORS as error:
            raise DataError(
                f"{path}, row {number}: {error}; expected "
                '{"timestamp": ms, "input_length": tokens, "output_length": tokens}'
            ) from error
        seconds = line.timestamp / 1000
        if not math.isfinite(seconds):
            raise DataError(f"{path}, row {number}: `timestamp` is not a finite number")
        if first is None:
            first = last = seconds
        if seconds < last:
            raise DataError(
                f"{path}, row {number}: `timestamp` goes back by {last - seconds:g} s; "
                "sort the file by that field"
            )
        last = seconds
        yield Request(
            id=str(number),
            arrival=seconds - first,
            prompt_tokens=max(line.input_length, 1),
            output_tokens=max(line.output_length, 1),
        )
    if first is None:
        raise DataError(f"{path}: empty, or only blank rows")
