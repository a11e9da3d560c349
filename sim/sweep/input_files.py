"""Digest of all that a run depends on, the contents of files that it reads included."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import decode_yaml, read_small_file
from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.load.load_text import FromFile, existing_path, parse_text

RUNS = "runs.jsonl"
"""Finished runs; a folder with this file is the output of a sweep, not data."""


def digest_of(*values: Any) -> str:
    """Digest of values, in which a text that names a file or folder stands for what it holds.

    Where the files lie does not matter, so a sweep may be moved together with its data.

    Raises DataError if a file can't be read.
    """
    try:
        known = msgspec.json.encode(_with_contents(msgspec.to_builtins(values)))
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror or error}") from error
    return hashlib.blake2b(known, digest_size=16).hexdigest()


def _with_contents(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_contents(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_contents(item) for item in value]
    found = existing_path(value, Path()) if isinstance(value, str) else None
    if found is None:
        return value
    files = [(path.name, _content(path)) for path in _files(value, Path(), set())]
    return [found[1], files] if files else value


def _files(text: str, folder: Path, seen: set[Path]) -> Iterator[Path]:
    """The file that a text names or the files in that folder, and those it names in turn."""
    try:
        parsed = parse_text(text, folder)
    except ConfigError:  # no file, such as the name of a tenant
        return
    if not isinstance(parsed, FromFile) or parsed.path in seen:
        return
    path = parsed.path
    seen.add(path)
    if path.is_dir():
        if not (path / RUNS).exists():
            yield from sorted(each for each in path.iterdir() if each.is_file())
        return
    yield path
    if path.suffix in {".yaml", ".yml"}:
        try:
            described = decode_yaml(read_small_file(path))
        except ValueError:  # the reader of the load reports it
            return
        for inside in _texts(described):
            yield from _files(inside, path.parent, seen)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a tree of lists and objects, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _content(path: Path) -> str:
    state = path.stat()
    return _content_digest(path, state.st_mtime_ns, state.st_size)


@cache
def _content_digest(path: Path, changed: int, size: int) -> str:
    """Digest of a file as it is since it was changed last."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
