"""Azure's LLM inference traces, and other CSV files of arrivals and lengths.

Two sets of columns are read: those of the published files (``TIMESTAMP``, ``ContextTokens``,
``GeneratedTokens``) and seconds instead of dates (``arrival_s``, ``input_tokens``,
``output_tokens``). Source of the format: github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.load.text_file import Row, header_of, table_rows

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
