"""A file with one JSON line per finished run, which survives a kill.

A line is appended with one write and flushed to the disk before the run counts as finished. A
process that dies in between leaves at most an incomplete last line; it is cut off on opening and
its run is repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS, read_bounded_lines
from adaptive_spec.errors import DataError

T = TypeVar("T")


class LineFile(Generic[T]):
    """Results of a type.

    Args:
        path: the file; it and its folder are made when they are missing.
        kind: of a line.
    """

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path, self._kind = path, kind
        path.parent.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[T]:
        """Read what is there. Raises DataError naming a line that is something else."""
        if not self.path.exists():
            return
        decoder = msgspec.json.Decoder(self._kind)
        whole = row = 0
        try:
            with self.path.open("rb") as lines:
                for line in read_bounded_lines(lines):
                    row += 1
                    if not line.endswith(b"\n"):
                        os.truncate(self.path, whole)
                        return
                    yield decoder.decode(line)
                    whole += len(line)
        except (OSError, *DECODE_ERRORS) as error:
            raise DataError(
                f"{self.path}: row {row} is damaged ({error}); remove that line to repeat its run"
            ) from error

    def append(self, result: T) -> None:
        """Keep a result; it is on the disk when this returns."""
        line = msgspec.json.encode(result) + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            while line:
                line = line[os.write(file, line) :]
            os.fsync(file)
        finally:
            os.close(file)


class KeyedFile(LineFile[T]):
    """Results by a key; of several with one key the last counts.

    Attributes:
        found: what is there, and what was added.
    """

    def __init__(self, path: Path, kind: type[T], key: Callable[[T], Hashable]) -> None:
        super().__init__(path, kind)
        self._key = key
        self.found = {key(result): result for result in self}

    def add(self, result: T) -> None:
        """Keep a result, as `append` does."""
        self.append(result)
        self.found[self._key(result)] = result


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
