"""Bounded, non-blocking reading of a file that a request or an operator has named."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_small_file(path: str | os.PathLike[str], most_bytes: int = 64 << 20) -> bytes:
    """Return the content of a regular file.

    Raises OSError if the file cannot be read, is a pipe or a device, or is larger than
    `most_bytes`.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    with Path(path).open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes} bytes")
    return content
