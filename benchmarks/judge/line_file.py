"""A file with one JSON line per result, which survives a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from adaptive_spec.errors import DataError

T = TypeVar("T")


class LineFile(Generic[T]):
    """Results of a type. A line that a kill has cut off is taken away: it is measured again."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path, self._kind = path, kind
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            path.write_bytes(whole)

    def __iter__(self) -> Iterator[T]:
        """Read what is there. Raises DataError naming a line that is something else."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield msgspec.json.decode(line, type=self._kind)
                except msgspec.DecodeError as error:
                    raise DataError(f"{self.path}: line {number}: {error}") from error

    def append(self, result: T) -> None:
        """Keep a result; it is on disk when this returns."""
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
