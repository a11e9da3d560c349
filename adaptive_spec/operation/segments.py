"""Segments of step traces: found in folders, by patterns and under URLs, and read line by line.

A URL is anything that fsspec opens. Its segments are copied to a temporary folder first, as they
are read several times.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import logging
import math
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS, is_plain, open_lines, read_bounded_lines
from adaptive_spec.errors import DataError, missing_extra
from adaptive_spec.operation.trace import SCHEMA

_LOG = logging.getLogger(__name__)
_NUMBER = re.compile(r"(\d+)")
_NAME = re.compile(r"steps-.*\.jsonl(\.gz|\.zst)?")
_URL = re.compile(r"(?!https?:)([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")
"""With one slash, too: what was a `Path` has lost the other. HTTP is that of a server."""


class Segment(NamedTuple):
    """A file of a trace, as long as it was when it was found: its server may be writing it."""

    path: Path
    size: int


def find_segments(place: str | os.PathLike[str]) -> list[Segment]:
    """Return the segments of a place, plain, gzip or zstd.

    A place is a folder, with the folders in it, a segment, a pattern of either such as ``*/gpu*``,
    or a URL of one. In order of folder, process and number. Links to folders are not followed.
    Raises DataError for a place that is not there.
    """
    top = Path(place)
    try:
        if top.is_dir():
            return _sorted(_in_folder(top))
        return [Segment(top, top.stat().st_size)]
    except OSError as error:
        if (url := _URL.fullmatch(str(place))) is not None:
            return find_segments(_copied(f"{url[1]}://{url[2]}"))
        matches = glob.glob(str(place), recursive=True)  # noqa: PTH207 - also absolute
        if not matches:
            raise DataError(f"{top}: no such directory or file") from error
    return _sorted(segment for match in matches for segment in _matching(Path(match)))


def is_trace_place(place: str | os.PathLike[str]) -> bool:
    """Return whether a place is a folder, a pattern or a URL, and thus of traces, not a file."""
    path = Path(place)
    if path.exists():
        return path.is_dir()
    return _URL.fullmatch(str(place)) is not None or glob.has_magic(str(place))


def _matching(path: Path) -> Iterator[Segment]:
    if path.is_dir():
        yield from _in_folder(path)
    elif _NAME.fullmatch(path.name):
        yield Segment(path, path.stat().st_size)


def _in_folder(top: Path) -> Iterator[Segment]:
    for folder, _, names in os.walk(top):
        for name in filter(_NAME.fullmatch, names):
            with contextlib.suppress(OSError):  # deleted meanwhile, or a link to nothing
                path = Path(folder, name)
                yield Segment(path, path.stat().st_size)


def _sorted(segments: Iterable[Segment]) -> list[Segment]:
    """Sort, each once: patterns may match a folder and its files."""
    return sorted(set(segments), key=lambda each: [_natural(part) for part in each.path.parts])


def _copied(url: str) -> Path:
    """Copy the segments under a URL; return the folder of the copies, gone when Python ends."""
    try:
        import fsspec
    except ImportError as error:
        raise missing_extra(f"{url}: a trace under a URL needs fsspec", "fleet") from error
    target = Path(tempfile.mkdtemp(prefix="adaptive-spec-trace-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    try:
        system, top = fsspec.core.url_to_fs(url)
        found = system.glob(top) if glob.has_magic(top) else [top]
        files = [file for each in found for file in system.find(each)]
        files = [file for file in files if _NAME.fullmatch(file.rpartition("/")[2])]
        if not files:
            raise DataError(f"{url}: no steps-*.jsonl under it")
        for file in files:
            copy = target / file.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(file, str(copy))
    except DataError:
        raise
    except Exception as error:  # each file system has errors of its own
        said = " ".join(str(error).split())[:200]
        raise DataError(f"{url}: cannot be read: {said or type(error).__name__}") from error
    return target


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in a name by value."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name)]


def read_trace(place: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the steps of all segments of a place, in the order of `find_segments`.

    Skips a cut last line, as a killed process or a full disk leaves it, and logs this. Raises
    DataError with file and line for any other line that is no step record of this schema.
    """
    for segment in find_segments(place):
        yield from read_segment(segment)


def read_segment(segment: Segment) -> Iterator[dict[str, Any]]:
    """Yield the steps of one segment, plain or gzipped, line by line, like `read_trace`."""
    path = segment.path
    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, line in _numbered_lines(segment):
        try:
            record = decoder.decode(line)
        except DECODE_ERRORS as error:
            if not line.endswith(b"\n"):
                _LOG.warning(
                    "adaptive_spec: %r, line %d: skipped, the line is cut", str(path), number
                )
                return
            raise DataError(f"{path}:{number}: not a step record: {error}") from error
        if record.get("schema") != SCHEMA:
            found = record.get("schema", "missing")
            if isinstance(found, int):
                raise DataError(
                    f"{path}:{number}: made by another version of adaptive-spec (schema {found}, "
                    f"not {SCHEMA}): read it with that one"
                )
            raise DataError(
                f"{path}:{number}: no step record (schema {found!r}, not {SCHEMA}); "
                "a trace is the folder of the key trace.directory, or a file of it"
            )
        yield record


def _numbered_lines(segment: Segment) -> Iterator[tuple[int, bytes]]:
    number, path = 0, segment.path
    try:
        with open_lines(path) as lines:
            # Servers write text; of a packed file, the size says nothing about its lines.
            left = segment.size if is_plain(lines) else math.inf
            for number, line in enumerate(read_bounded_lines(lines), start=1):
                if len(line) > left:  # written since
                    return
                left -= len(line)
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, PermissionError):
            reason = f"{reason}; run as the user of the server, whose files have mode 0600"
        raise DataError(f"{path}:{number + 1}: cannot be read: {reason}") from error
