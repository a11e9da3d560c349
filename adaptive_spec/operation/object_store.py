"""Small objects under a folder or an fsspec URL that several processes write, each its own.

A reader sees an object as it was or as it is, never in part: files are renamed into place, object
stores replace a key at once, and other file systems of fsspec rename, too. fsspec is imported where
a URL has a scheme, by the thread that reads or writes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from adaptive_spec.bounded_read import read_small_file
from adaptive_spec.errors import missing_extra
from adaptive_spec.operation.output_file import replace_file

_REPLACES = {"abfs", "abfss", "az", "gcs", "gs", "s3", "s3a"}
"""Schemes of stores that put an object as a whole."""
_TIMES = "LastModified", "last_modified", "mtime", "updated", "created"
"""Keys under which file systems of fsspec tell when an object was written."""
_MOST_LISTED = 100_000


class Found(NamedTuple):
    """An object.

    Attributes:
        name: without the folder.
        written: seconds since 1970; 0.0 where the store does not tell.
        size: bytes.
    """

    name: str
    written: float
    size: int


class ObjectStore(Protocol):
    """Objects by name. Each method raises what the store raises."""

    def list(self, start: str) -> list[Found]:
        """Return the objects whose name begins with `start`."""
        ...

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return an object of at most so many bytes. Raises OSError for a larger one."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Replace an object, or make it."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object; one that is not there is no fault."""
        ...


def open_store(url: str) -> ObjectStore:
    """Return the store under a folder's path or an fsspec URL. Raises what fsspec raises."""
    if has_scheme(url):
        return _UrlStore(url)
    return _FolderStore(Path(url))


def has_scheme(url: str) -> bool:
    """Return whether fsspec is needed."""
    return "://" in url and not url.startswith("file://")


class _FolderStore:
    def __init__(self, folder: Path) -> None:
        self._folder = Path(re.sub("^file:/*", "/", str(folder)))

    def list(self, start: str) -> list[Found]:
        return list(self._each(start)) if self._folder.is_dir() else []

    def _each(self, start: str) -> Iterator[Found]:
        for number, path in enumerate(self._folder.iterdir()):
            if number >= _MOST_LISTED:
                return
            if path.name.startswith(start):
                with contextlib.suppress(OSError):  # just removed
                    status = path.lstat()
                    yield Found(path.name, status.st_mtime, status.st_size)

    def read(self, name: str, most_bytes: int) -> bytes:
        return read_small_file(self._folder / name, most_bytes)

    def write(self, name: str, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / name, content)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class _UrlStore:
    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise missing_extra("a state under a URL needs fsspec", "fleet") from error
        self._system: Any
        self._system, self._folder = fsspec.core.url_to_fs(url)
        self._folder = self._folder.rstrip("/")
        self._replaces = url.partition("://")[0] in _REPLACES

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def list(self, start: str) -> list[Found]:
        try:
            found = self._system.ls(self._folder, detail=True, refresh=True)
        except TypeError:  # a file system without a cache of listings
            found = self._system.ls(self._folder, detail=True)
        except FileNotFoundError:
            return []
        return [
            Found(name, _written(each), int(each.get("size") or 0))
            for each in found[:_MOST_LISTED]
            if (name := str(each["name"]).rpartition("/")[2]).startswith(start)
        ]

    def read(self, name: str, most_bytes: int) -> bytes:
        content: bytes = self._system.cat_file(self._path(name), start=0, end=most_bytes + 1)
        if len(content) > most_bytes:
            raise OSError(f"more than {most_bytes} bytes")
        return content

    def write(self, name: str, content: bytes) -> None:
        if self._replaces:
            self._system.pipe_file(self._path(name), content)
            return
        self._system.makedirs(self._folder, exist_ok=True)
        temporary = self._path(f"{name}.new")
        self._system.pipe_file(temporary, content)
        self._system.mv(temporary, self._path(name))

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(name))


def _written(details: dict[str, Any]) -> float:
    for key in _TIMES:
        value = details.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0
