"""The files that a sweep reads, and a digest of their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import decode_yaml, read_small_file
from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.load.load_text import FromFile, parse_text
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.sweep.cells import Cell, policy_texts
from adaptive_spec.sim.sweep.config import SweepConfig

SWEEP_HEADER = "sweep.json"
"""A folder with this file is the output of a sweep, not data."""


def digest_of(config: SweepConfig, cells: tuple[Cell, ...], folder: Path) -> str:
    """Digest of what is in every file that these cells and policies name.

    Two sweeps of one configuration have the same digest if their files hold the same; where the
    files lie does not matter, so a sweep may be moved together with its data.

    Raises DataError if a file can't be read.
    """
    named = [text for cell in cells for text in _texts(msgspec.to_builtins(cell.scenario))]
    for policy in dict.fromkeys(text for _, _, text in policy_texts(config, cells, folder)):
        named += _texts(parse_policy(policy).options)
    content = cache(_content_digest)
    try:
        # The order follows the configuration: files of one name in two folders stay apart.
        found = [
            [(path.name, content(path)) for path in _files(text, Path(), set())]
            for text in dict.fromkeys(named)
        ]
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror or error}") from error
    known = [each for each in found if each]
    return hashlib.blake2b(msgspec.json.encode(known), digest_size=16).hexdigest()


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
        if not (path / SWEEP_HEADER).exists():
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


def _content_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
