"""Public tables as polars frames, with errors that name file and column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.step import FloatArray

if TYPE_CHECKING:
    import polars as pl


def read_table(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    """The CSV file with these columns.

    Raises DataError if the file is missing, no CSV, empty, or lacks a column.
    """
    import polars as pl

    if not path.is_file():
        raise DataError(f"{path}: no such table; is this the data folder?")
    try:
        frame = pl.read_csv(path, infer_schema_length=None)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path}: cannot be read as CSV: {str(error).splitlines()[0]}") from error
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise DataError(f"{path}: no column {missing[0]!r}; it has {', '.join(frame.columns)}")
    if frame.is_empty():
        raise DataError(f"{path}: no rows")
    return frame


def numbers(frame: pl.DataFrame, path: Path, *columns: str) -> FloatArray:
    """[rows, columns] as floats. Raises DataError with the row of what is not a number."""
    import polars as pl

    result = np.empty((frame.height, len(columns)))
    for place, column in enumerate(columns):
        values = frame[column].cast(pl.Float64, strict=False)
        wrong = values.is_null() | values.is_nan()
        if wrong.any():
            row = int(np.argmax(wrong.to_numpy()))
            raise DataError(
                f"{path}: row {row + 2}: {column!r} is {frame[column][row]!r}, not a number"
            )
        result[:, place] = values.to_numpy()
    return result
