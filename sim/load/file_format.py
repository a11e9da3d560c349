"""Which kind of load a file or directory holds, found from its content."""

from __future__ import annotations

import enum
from contextlib import closing
from pathlib import Path

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS
from adaptive_spec.errors import DataError
from adaptive_spec.sim.load.azure import is_azure
from adaptive_spec.sim.load.text_file import header_of
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
