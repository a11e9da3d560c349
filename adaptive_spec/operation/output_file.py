"""Replacement of whole files that follows no link, never blocks and leaves nothing half written.

A file is written under a random name in the same folder and then renamed. `O_EXCL` and
`O_NOFOLLOW` make sure that nothing planted under that name is opened; a link, pipe or file that
stands under the final name is replaced, not written to.

A process that keeps writing one file owns it: it holds a lock on what it wrote last, which ends
with the process. A second process on the same name gets an error until the owner is gone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from pathlib import Path

MODE = 0o600
"""Permissions of all files: the operator's own user."""

_RANDOM_BYTES = 4
_TEMPORARY = re.compile(rf"\.[0-9a-f]{{{2 * _RANDOM_BYTES}}}\.new")


def create_file(path: Path) -> int:
    """Create a file that must not exist yet and return its descriptor, locked for this process.

    Raises OSError, FileExistsError if anything has this name.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, MODE)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def write_all(handle: int, content: bytes) -> None:
    """Write all bytes to a descriptor. Raises OSError."""
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all. Raises OSError."""
    os.close(_replaced(path, content))


def in_use(path: Path) -> bool:
    """Whether a live process holds the lock of `create_file` on this file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove temporaries and files of a name pattern that no process writes; never raises.

    Args:
        folder: where to look.
        name: regular expression of the final names.
    """
    pattern = re.compile(f"(?:{name})(?:{_TEMPORARY.pattern})?")
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if pattern.fullmatch(path.name) and not path.is_symlink():
                with contextlib.suppress(OSError):
                    if path.is_file() and path.stat().st_uid == os.getuid() and not in_use(path):
                        path.unlink()


def remove_temporaries(path: Path) -> None:
    """Remove what a killed process left beside a file that it was writing; never raises."""
    remove_leftovers(path.parent, re.escape(path.name) + _TEMPORARY.pattern)


class OwnedFile:
    """A file that one process writes again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1
        remove_temporaries(path)

    def replace(self, content: bytes) -> None:
        """Write the file anew. Raises OSError, also while another process owns the file."""
        if not self._owned():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if in_use(self._path):
                raise OSError(errno.EBUSY, "another process writes it; put {pid} in the name")
        handle, self._handle = self._handle, _replaced(self._path, content)
        if handle >= 0:
            os.close(handle)

    def remove(self) -> None:
        """Remove the file, unless another process owns it. Raises OSError."""
        if self._owned():
            self._path.unlink()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _owned(self) -> bool:
        if self._handle < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._handle), self._path.lstat())
        except OSError:
            return False


def _replaced(path: Path, content: bytes) -> int:
    """Replace a file and return the descriptor of the new one, which holds the lock."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(_RANDOM_BYTES)}.new")
    handle = create_file(temporary)
    try:
        write_all(handle, content)
        temporary.replace(path)
    except BaseException:
        os.close(handle)
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return handle
