"""Mooncake's traces: JSON lines with a time in milliseconds and two lengths.

The hashes of prefix blocks are not used: the simulated engine has no prefix cache. Source of the
format: github.com/kvcache-ai/Mooncake, FAST'25 release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS
from adaptive_spec.errors import DataError
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.load.text_file import MOST_TOKENS
from adaptive_spec.sim.text_rows import read_lines

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
