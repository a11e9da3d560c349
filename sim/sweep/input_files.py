"""The files that a sweep reads, and a digest of their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.load.load_text import FromFile, parse_text
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.sweep.cells import Cell, policy_texts
from adaptive_spec.sim.sweep.config import SweepConfig
from adaptive_spec.sim.sweep.policy_text import PolicyTexts

SWEEP_HEADER = "sweep.json"
"""A folder with this file is the output of a sweep, not data."""
_DESCRIPTIONS = {".yaml", ".yml"}


def digest_of(config: SweepConfig, cells: tuple[Cell, ...], texts: PolicyTexts) -> str:
    """Digest of what is in every file that these cells and policies name.

    Two sweeps of one configuration have the same digest if their files hold the same; where the
    files lie does not matter, so a sweep may be moved together with its data.

    Raises DataError if a file can't be read.
    """
    # The order follows the configuration: files of one name in two folders stay apart.
    content = cache(_content_digest)
    found = [
        [(path.name, content(path)) for path in dict.fromkeys(paths)]
        for paths in _paths(config, cells, texts)
    ]
    return hashlib.blake2b(msgspec.json.encode(found), digest_size=16).hexdigest()


def _paths(
    config: SweepConfig, cells: tuple[Cell, ...], texts: PolicyTexts
) -> Iterator[Iterator[Path]]:
    """For each text that may name files, those there are."""
    scenarios = [cell.scenario for cell in cells]
    named = [text for scenario in scenarios for text in scenario.acceptance]
    named += [file for each in scenarios for phase in each.phases for file in phase.files]
    named += [scenario.hardware for scenario in scenarios]
    if texts.tuned_file is not None:
        named.append(str(texts.tuned_file))
    for text in dict.fromkeys(named):
        yield _members(Path(text))
    for text in dict.fromkeys(scenario.load for scenario in scenarios):
        yield _load_files(text, Path(), set())
    for policy in dict.fromkeys(policy_texts(config, cells, texts)):
        options = _texts(parse_policy(policy).options)
        yield (path for path in map(Path, options) if _is_file(path))


def _load_files(text: str, folder: Path, seen: set[Path]) -> Iterator[Path]:
    """What a load reads: its file, and what a description names in turn."""
    try:
        parsed = parse_text(text, folder)
    except ConfigError:  # neither a load nor a file, such as the name of a tenant
        return
    if not isinstance(parsed, FromFile) or parsed.path in seen:
        return
    path = parsed.path
    seen.add(path)
    yield from _members(path)
    if path.suffix in _DESCRIPTIONS and path.is_file():
        for inside in _texts(_decoded(path)):
            yield from _load_files(inside, path.parent, seen)
    # A ServeGen load finds the lengths of its clients by the name of the file with their rates.
    lengths = path.name.replace("client_rates", "length_quantiles").removesuffix(".gz")
    if lengths != path.name.removesuffix(".gz"):
        beside = (path.with_name(name) for name in (lengths, f"{lengths}.gz"))
        yield from (other for other in beside if _is_file(other))


def _members(path: Path) -> Iterator[Path]:
    """The file itself, or the files in a folder, in order of their names."""
    if _is_file(path):
        yield path
    elif _is_folder(path) and not (path / SWEEP_HEADER).exists():
        try:
            yield from sorted(each for each in path.iterdir() if each.is_file())
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from error


def _texts(value: Any) -> Iterator[str]:
    """Every text in a tree of lists and objects, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _decoded(path: Path) -> Any:
    try:
        return msgspec.yaml.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, ValueError):  # the reader of the load reports it
        return None


def _content_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
