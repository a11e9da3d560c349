"""Rows of a JSON-lines file, plain or gzip, with errors that name file and row."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS, open_lines, read_bounded_lines
from adaptive_spec.errors import DataError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_rows(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Row number (from 1) and JSON object of each line; empty lines are passed over.

    Args:
        path: the file; gzip is recognised by its first bytes, not by its name.

    Raises DataError for a file that is missing, empty, cut short, or not JSON lines.
    """
    file = Path(path)
    decoder = msgspec.json.Decoder(dict[str, Any])
    rows = 0
    for number, line in read_lines(file):
        try:
            row = decoder.decode(line)
        except DECODE_ERRORS as error:
            raise DataError(
                f"{file}: row {number}: not a JSON object ({error}); expected one object per line"
            ) from error
        rows += 1
        yield number, row
    if not rows:
        raise DataError(f"{file}: empty; expected one JSON object per line")


def read_lines(path: str | os.PathLike[str]) -> Generator[tuple[int, bytes]]:
    """Line number (from 1) and bytes of each line that is not blank; no byte order mark.

    Raises DataError for a file that is missing, for a line beyond `LONGEST_LINE` and, if the file
    is compressed, for damage.
    """
    file = Path(path)
    number = 0
    try:
        with open_lines(file) as stream:
            for number, line in enumerate(read_bounded_lines(stream), start=1):
                if number == 1:
                    line = line.removeprefix(_BYTE_ORDER_MARK)
                if line.strip():
                    yield number, line
    except EOFError as error:
        raise DataError(
            f"{file}: cut short after row {number}: the compressed file has no end; fetch it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{file}: damaged after row {number}: {error}; fetch it again") from error
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error
