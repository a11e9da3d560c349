"""Bounded reading of files and texts that an operator or a request has named.

Whatever the content, the reader does not block, does not crash and raises one line: the size, the
depth, the digits of numbers and the growth by YAML aliases are limited.
"""

from __future__ import annotations

import errno
import gzip
import io
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

DECODE_ERRORS = (msgspec.DecodeError, ValueError, RecursionError)
"""Raised by JSON decoders on text that is malformed, not UTF-8 or too deep."""

MOST_DEPTH = 64
_MOST_NODES = 1_000_000
"""Most values of a YAML text, those repeated by aliases included."""
_LARGEST_INTEGER = 1 << 63


def open_regular(path: str | os.PathLike[str], *, own: bool = False) -> BinaryIO:
    """Open a regular file to read. What it is is looked at after it is open.

    Args:
        path: of the file.
        own: only of this user or root, and not behind a link: in a folder that others share.

    Raises OSError if the file cannot be opened, or is a folder, a pipe or a device.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags | os.O_NOFOLLOW if own else flags)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if own and found.st_uid not in (os.geteuid(), 0):
            raise OSError(errno.EPERM, "of another user")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_small_file(
    path: str | os.PathLike[str], most_bytes: int = 64 << 20, *, own: bool = False
) -> bytes:
    """Return the content of a regular file of at most so many bytes.

    Raises OSError as `open_regular` does, and for a larger file.
    """
    with open_regular(path, own=own) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, most_bytes) + 1)  # allocates as much
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes} bytes")
    return content


LONGEST_LINE = 16 << 20
"""Bytes of a line of a trace, a load or acceptance data; a step of 1,000 requests has 0.3 MB."""


_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_OTHERS = {b"PAR1": "Parquet", b"PK\x03\x04": "zip"}
"""First bytes of files that hold no lines of text, and what they are."""


@contextmanager
def open_lines(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file of lines, plain, gzip or zstd; the first bytes tell, not the name.

    Raises OSError as `open_regular` does, if it is of another packed format, or if it is zstd and
    the package zstandard is missing. A damaged zstd file raises OSError where it is read.
    """
    with open_regular(path) as raw:
        start = cast(io.BufferedReader, raw).peek(4)[:4]
        if kind := _OTHERS.get(start):
            raise OSError(errno.EINVAL, f"a {kind} file; only text is read, plain, gzip or zstd")
        if start.startswith(_GZIP):
            yield cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=raw)))
        elif start == _ZSTD:
            yield cast(BinaryIO, io.BufferedReader(_ZstdFile(raw)))
        else:
            yield raw


def is_plain(lines: BinaryIO) -> bool:
    """Return whether what `open_lines` gave is the file itself, as long as it is on disk."""
    return not isinstance(getattr(lines, "raw", None), gzip.GzipFile | _ZstdFile)


class _ZstdFile(io.RawIOBase):
    """Reads a zstd file, of any number of frames."""

    def __init__(self, raw: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError as error:
            said = "a zstd file needs zstandard: pip install '.[fleet]' in a checkout"
            raise OSError(errno.EINVAL, said) from error
        self._error = zstandard.ZstdError
        self._reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer. Raises OSError for a damaged file."""
        try:
            return int(self._reader.readinto(buffer))
        except self._error as error:
            raise OSError(errno.EINVAL, f"damaged: {error}") from error


def read_bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file. Raises OSError, which names the line, for one without an end."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise OSError(errno.EFBIG, f"line {number} is longer than {LONGEST_LINE:,} bytes")
        yield line


def decode_json(content: bytes | str, type_: Any = Any) -> Any:
    """Decode a JSON text as a value of a type. Raises ValueError, one line."""
    try:
        value = msgspec.json.decode(content, type=type_)
    except RecursionError as error:
        raise ValueError(f"nested deeper than {MOST_DEPTH}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(_one_line(error)) from error
    check_plain(value)
    return value


def decode_yaml(content: bytes) -> Any:
    """Decode a YAML text of one document. Raises ValueError, one line."""
    documents = decode_yaml_documents(content)
    if len(documents) > 1:
        raise ValueError(f"{len(documents)} documents; give one")
    return documents[0] if documents else None


def decode_yaml_documents(content: bytes) -> list[Any]:
    """Decode the documents of a YAML text. Raises ValueError, one line."""
    import yaml

    try:
        _check_yaml(content)
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents = list(yaml.load_all(content, Loader=loader))
    except Exception as error:  # PyYAML's constructors of odd scalars raise whatever they meet
        raise ValueError(_one_line(error) or type(error).__name__) from error
    for document in documents:
        check_plain(document)
    return documents


def decode_document(path: Path, content: bytes) -> Any:
    """Decode a file as JSON or YAML, by its name. Raises ValueError, one line."""
    return decode_json(content) if path.suffix == ".json" else decode_yaml(content)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _check_yaml(content: bytes) -> None:
    """Check depth and growth by events: libyaml's loader recurses in C and would crash."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    sizes: dict[str | None, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(content, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            if len(open_nodes) > MOST_DEPTH:
                raise ValueError(f"nested deeper than {MOST_DEPTH}")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise ValueError(f"`{event.anchor}` contains itself")
            total += sizes.get(event.anchor, 0)
        total += 1
        if total > _MOST_NODES:
            raise ValueError(f"more than {_MOST_NODES} values")


def count_values(value: Any) -> int:
    """Return the number of values in nested dicts, lists and tuples, the containers included."""
    count, level = 0, [value]
    while level:
        count += len(level)
        deeper: list[Any] = []
        for each in level:
            if isinstance(each, Mapping):
                deeper += each.values()
            elif isinstance(each, list | tuple):
                deeper += each
        level = deeper
    return count


def check_plain(value: Any) -> None:
    """Raise ValueError for values that JSON or a float cannot hold, and for deep nesting."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        deeper: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                deeper += each.values()
            elif isinstance(each, list):
                deeper += each
            elif isinstance(each, float) and not math.isfinite(each):
                raise ValueError(f"{each} is not a finite number")
            elif isinstance(each, int) and abs(each) >= _LARGEST_INTEGER:
                raise ValueError("an integer has more than 64 bits")
        if not deeper:
            return
        level = deeper
    raise ValueError(f"nested deeper than {MOST_DEPTH}")
