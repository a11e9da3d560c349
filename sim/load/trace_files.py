"""Public traces of arrivals and lengths, found from their content; errors name file and row.

==========  ======================================================================================
Azure       CSV: ``TIMESTAMP``, ``ContextTokens``, ``GeneratedTokens``
            (github.com/Azure/AzurePublicDataset), or seconds instead of dates: ``arrival_s``,
            ``input_tokens``, ``output_tokens``
BurstGPT    CSV: ``Timestamp`` in seconds, ``Request tokens``, ``Response tokens``
            (github.com/HPMLL/BurstGPT)
Mooncake    JSON lines: ``timestamp`` in milliseconds, ``input_length``, ``output_length``
            (github.com/kvcache-ai/Mooncake, FAST'25 release)
Bailian     the same names and ``chat_id``; ``timestamp`` in seconds
            (github.com/alibaba-edu/qwen-bailian-usagetraces-anon)
==========  ======================================================================================

Others write Mooncake's names with seconds, such as guidellm: where the times of a file look like
seconds, the reader asks for the unit. The hashes of prefix blocks are not used: the simulated
engine has no prefix cache.
"""

from __future__ import annotations

import csv
import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, NoReturn

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS
from adaptive_spec.errors import DataError
from adaptive_spec.operation.segments import is_trace_place
from adaptive_spec.sim.load.request import MOST_TOKENS, Request
from adaptive_spec.sim.text_rows import read_lines

FORMATS = (
    "CSV with TIMESTAMP,ContextTokens,GeneratedTokens or arrival_s,input_tokens,output_tokens "
    "(Azure) or Timestamp,Request tokens,Response tokens (BurstGPT), JSON lines with timestamp,"
    "input_length,output_length (Mooncake, Bailian), a directory with a step trace, or a "
    "description in a .yaml file"
)
Unit = Literal["s", "ms"]
SAMPLE = 1000
"""First rows of a file that tell what its times mean."""
_MOST_PER_SECOND = 100
"""Requests per second of a sample from which on milliseconds are taken for seconds."""
_LEAST_ROWS = 20
"""Rows from which on a rate tells anything."""


class LoadFormat(enum.Enum):
    """Formats of load files."""

    AZURE = "azure"
    BURSTGPT = "BurstGPT"
    MOONCAKE = "mooncake"
    BAILIAN = "bailian"
    STEP_TRACE = "step trace"
    DESCRIPTION = "description"


def format_of(path: Path) -> LoadFormat:
    """The format of an existing file or directory.

    Raises DataError if it is none that can be read, or cannot be read at all.
    """
    if is_trace_place(path):
        return LoadFormat.STEP_TRACE
    if path.suffix in {".yaml", ".yml"}:
        return LoadFormat.DESCRIPTION
    with closing(read_lines(path)) as lines:
        number, row = next(lines, (0, b""))
    if row.lstrip().startswith(b"{"):
        return _json_lines(path, number, row)
    header = set(header_of(path))
    if set(PUBLISHED) <= header or set(IN_SECONDS) <= header:
        return LoadFormat.AZURE
    if set(_BURSTGPT) <= header:
        return LoadFormat.BURSTGPT
    raise DataError(f"{path}, row 1: not a load that can be read; expected {FORMATS}")


def _json_lines(path: Path, number: int, row: bytes) -> LoadFormat:
    try:
        keys = set(msgspec.json.decode(row, type=dict[str, msgspec.Raw]))
    except DECODE_ERRORS as error:
        raise DataError(f"{path}, row {number}: not a JSON object: {error}") from error
    if {"timestamp", "input_length", "output_length"} <= keys:
        return LoadFormat.BAILIAN if "chat_id" in keys else LoadFormat.MOONCAKE
    if {"schema", "step", "ids"} <= keys:
        raise DataError(f"{path}: a segment of a step trace; give its directory")
    raise DataError(f"{path}, row {number}: not a load that can be read; expected {FORMATS}")


class _Arrival(NamedTuple):
    """A request of a file: row, seconds by the file's own clock, tokens."""

    row: int
    seconds: float
    prompt_tokens: int
    output_tokens: int


def _wrong(path: Path, row: int, what: str) -> NoReturn:
    raise DataError(f"{path}, row {row}: {what}")


def _tokens(path: Path, row: int, name: str, value: float) -> int:
    """A number of tokens; 0 becomes 1, since a request has a prompt and emits a token."""
    if not value >= 0:
        _wrong(path, row, f"`{name}` is {value:g}, below 0")
    if value > MOST_TOKENS:
        _wrong(path, row, f"`{name}` is {value:g}, more than {MOST_TOKENS:,} tokens")
    if value != int(value):
        _wrong(path, row, f"`{name}` is {value:g}, not a whole number of tokens")
    return max(int(value), 1)


def _requests(path: Path, name: str, arrivals: Iterator[_Arrival]) -> Iterator[Request]:
    """Requests whose first arrives at 0. Raises DataError where the time `name` goes back."""
    first, last = None, 0.0
    for row, seconds, prompt_tokens, output_tokens in arrivals:
        first = seconds if first is None else first
        since = seconds - first
        if since < last:
            _wrong(path, row, f"`{name}` goes back by {last - since:g} s; sort the file by it")
        last = since
        yield Request(
            id=str(row),
            arrival=since,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table. Its methods raise DataError with file, row and column."""

    path: Path
    number: int
    values: Mapping[str, str]

    def real(self, column: str) -> float:
        """A finite number of at least 0."""
        text = self.values[column]
        try:
            value = float(text)
        except ValueError:
            self.wrong(f"`{column}` is {text!r}, not a number")
        if not math.isfinite(value):
            self.wrong(f"`{column}` is {text!r}, not a finite number")
        if value < 0:
            self.wrong(f"`{column}` is {text}, below 0")
        return value

    def tokens(self, column: str) -> int:
        """A number of tokens."""
        return _tokens(self.path, self.number, column, self.real(column))

    def wrong(self, what: str) -> NoReturn:
        """Raise a DataError that names file and row."""
        _wrong(self.path, self.number, what)


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
            cells = next(csv.reader([line.decode()]))
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}, row {number}: not CSV text: {error}") from error
        if any(cell.strip() for cell in cells):
            yield number, cells


PUBLISHED = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IN_SECONDS = ("arrival_s", "input_tokens", "output_tokens")
_BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")


def read_azure(path: Path) -> Iterator[Request]:
    """Requests in order of arrival, the first at 0; ids are row numbers, the header being row 1.

    A length of 0 becomes 1. Constant memory. Raises DataError with file and row.
    """
    if PUBLISHED[0] not in header_of(path):
        return _of_table(path, IN_SECONDS)
    arrival, prompt, output = PUBLISHED
    return _requests(
        path,
        arrival,
        (
            _Arrival(row.number, seconds, row.tokens(prompt), row.tokens(output))
            for row, seconds in _dated(table_rows(path, PUBLISHED))
        ),
    )


def read_burstgpt(path: Path) -> Iterator[Request]:
    """Requests as of `read_azure`; a failed one, which has 0 tokens, counts with 1."""
    return _of_table(path, _BURSTGPT)


def _of_table(path: Path, columns: tuple[str, str, str]) -> Iterator[Request]:
    """Requests of a table with arrivals in seconds, prompt tokens and output tokens."""
    arrival, prompt, output = columns
    rows = table_rows(path, columns)
    return _requests(
        path,
        arrival,
        (
            _Arrival(row.number, row.real(arrival), row.tokens(prompt), row.tokens(output))
            for row in rows
        ),
    )


def _dated(rows: Iterator[Row]) -> Iterator[tuple[Row, float]]:
    """Rows with seconds since the first one's date."""
    first: datetime | None = None
    for row in rows:
        text = row.values["TIMESTAMP"].strip()
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            row.wrong(f"`TIMESTAMP` is {text!r}, not a date such as 2023-11-16 18:17:03.979")
        first = moment if first is None else first
        if (moment.tzinfo is None) != (first.tzinfo is None):
            row.wrong("`TIMESTAMP` has a time zone in some rows and none in others")
        yield row, (moment - first).total_seconds()


class _Line(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: float
    output_length: float


def read_mooncake(path: Path, unit: Unit | None = None) -> Iterator[Request]:
    """Requests in order of arrival, the first at 0; ids are row numbers, from 1.

    A length of 0 becomes 1. Constant memory.

    Args:
        path: the file.
        unit: of its times; None: milliseconds, unless they look like seconds.

    Raises DataError with file and row, and if the times look like seconds.
    """
    lines = _lines(path)
    head = list(islice(lines, SAMPLE))
    if unit is None:
        _check_milliseconds(path, [line.timestamp for _, line in head])
    per_second = 1 if unit == "s" else 1000
    return _requests(
        path,
        "timestamp",
        (
            _Arrival(
                number,
                line.timestamp / per_second,
                _tokens(path, number, "input_length", line.input_length),
                _tokens(path, number, "output_length", line.output_length),
            )
            for number, line in chain(head, lines)
        ),
    )


def _lines(path: Path) -> Iterator[tuple[int, _Line]]:
    decoder = msgspec.json.Decoder(_Line)
    number = 0
    for number, text in read_lines(path):
        try:
            line = decoder.decode(text)
        except DECODE_ERRORS as error:
            raise DataError(
                f"{path}, row {number}: {error}; expected "
                '{"timestamp": time, "input_length": tokens, "output_length": tokens}'
            ) from error
        if not math.isfinite(line.timestamp):
            _wrong(path, number, "`timestamp` is not a finite number")
        yield number, line
    if not number:
        raise DataError(f"{path}: empty, or only blank rows")


def _check_milliseconds(path: Path, times: Sequence[float]) -> None:
    """Raise DataError for times with fractions, or too close for milliseconds."""
    seconds = (times[-1] - times[0]) / 1000
    fast = len(times) >= _LEAST_ROWS and len(times) > _MOST_PER_SECOND * seconds > 0
    if fast or 2 * sum(time % 1 > 0 for time in times) > len(times):
        raise DataError(
            f"{path}: is `timestamp` in seconds, as in guidellm's files, or in milliseconds, as in "
            f"Mooncake's (then {len(times)} requests in {seconds:.3g} s)? Put @unit=s or @unit=ms "
            "behind the name"
        )
