"""Replacement of whole files that follows no link, never blocks and leaves nothing half written.

A file is written under a random name in the same folder and then renamed. `O_EXCL` and
`O_NOFOLLOW` make sure that nothing planted under that name is opened; a link, pipe or file that
stands under the final name is replaced, not written to.

A process that keeps writing one file owns it: it holds a lock on what it wrote last, which ends
with `close` or with the process. A second process on the same name gets an error until then. A
forked child closes its copies of the descriptors at once: it would hold the locks beyond the end of
its parent.

An output that fails is tried again, less and less often, for ever (`Retry`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from adaptive_spec.config import Config

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0


class Retry:
    """Output of the process that is tried again after failures, such as the status file.

    No method raises. The first failure of an outage is logged, and so is its end.

    Args:
        output: name of the output, for the log and the counter.
        count: called with the name at each failure.
        logger: logger of the engine.
    """

    def __init__(self, output: str, count: Callable[[str], None], logger: logging.Logger) -> None:
        self._output = output
        self._count = count
        self._log = logger
        self._wait = 0.0
        self._next = 0.0

    @property
    def failing(self) -> bool:
        """Return whether the last attempt failed."""
        return self._wait > 0

    def due(self, now: float) -> bool:
        """Return whether to try at `now` (seconds, monotonic); a clock may jump back."""
        return not self.failing or not 0 < self._next - now <= self._wait

    def attempt(self, now: float, action: Callable[[], object]) -> bool:
        """Run the action if it is due; return whether it succeeded."""
        if not self.due(now):
            return False
        try:
            action()
        except Exception as error:
            self.failed(now, error)
            return False
        if self.failing:
            self._log.warning("adaptive_spec: %s: works again", self._output)
            self._wait = 0.0
        return True

    def failed(self, now: float, error: Exception) -> None:
        """Count a failure of the output and put off the next attempt."""
        self._count(self._output)
        if not self.failing:
            self._log.warning(
                "adaptive_spec: %s: %s: %s; tried again every %.0f to %.0f s, serving goes on",
                self._output,
                type(error).__name__,
                error,
                _FIRST_SECONDS,
                _LONGEST_SECONDS,
            )
        self._wait = min(2 * self._wait, _LONGEST_SECONDS) or _FIRST_SECONDS
        self._next = now + self._wait


MODE = 0o600
"""Permissions of all files: the operator's own user."""

_RANDOM_BYTES = 4
_TEMPORARY = re.compile(rf"\.[0-9a-f]{{{2 * _RANDOM_BYTES}}}\.new")


class LockedFile:
    """A new file, open for writing and locked for this process.

    Args:
        path: name that nothing may have yet.

    Raises OSError, FileExistsError if anything has this name.
    """

    _open: ClassVar[weakref.WeakSet[LockedFile]] = weakref.WeakSet()

    def __init__(self, path: Path) -> None:
        self._handle = -1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            self._handle = os.open(path, flags, MODE)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._handle, fcntl.LOCK_EX)  # held by others for moments only
            if os.fstat(self._handle).st_nlink:
                break
            os.close(self._handle)  # removed as a leftover before it was locked
        self._open.add(self)

    def write(self, content: bytes) -> None:
        """Write all bytes. Raises OSError."""
        left = memoryview(content)
        while left:
            left = left[os.write(self._handle, left) :]

    def is_at(self, path: Path) -> bool:
        """Return whether this file, still open, stands under the name."""
        try:
            return os.path.samestat(os.fstat(self._handle), path.lstat())
        except OSError:
            return False

    def close(self) -> None:
        """Close the file and release its lock; never raises."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            with contextlib.suppress(OSError):
                os.close(handle)

    __del__ = close


def _close_in_child() -> None:
    for file in list(LockedFile._open):
        file.close()


os.register_at_fork(after_in_child=_close_in_child)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all. Raises OSError."""
    _replaced(path, content).close()


def in_use(path: Path) -> bool:
    """Return whether a live process holds the lock of `LockedFile` on this file."""
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


def remove_unused(path: Path) -> None:
    """Remove a file unless a live process holds the lock of `LockedFile` on it. Raises OSError.

    The lock is held until the file is gone: a writer that has just created it finds that out.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        # Its writer may have found it removed, and have made another under the same name.
        if os.path.samestat(os.fstat(handle), path.lstat()):
            path.unlink()
    finally:
        os.close(handle)


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
                    if path.is_file() and path.stat().st_uid == os.getuid():
                        remove_unused(path)


def remove_temporaries(path: Path) -> None:
    """Remove what a killed process left beside a file that it was writing; never raises."""
    remove_leftovers(path.parent, re.escape(path.name) + _TEMPORARY.pattern)


class OwnedFile:
    """A file that one process writes again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LockedFile | None = None
        remove_temporaries(path)

    def replace(self, content: bytes) -> None:
        """Write the file anew. Raises OSError, also while another process owns the file."""
        if not self._owned():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if in_use(self._path):
                raise OSError(errno.EBUSY, "another process writes it; put {pid} in the name")
        before, self._file = self._file, _replaced(self._path, content)
        if before is not None:
            before.close()

    def remove(self) -> None:
        """Remove the file, unless another process owns it. Raises OSError."""
        if self._owned():
            self._path.unlink()
        self.close()

    def close(self) -> None:
        """Let another process, or another object of this process, write the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _owned(self) -> bool:
        return self._file is not None and self._file.is_at(self._path)


def _replaced(path: Path, content: bytes) -> LockedFile:
    """Replace a file and return the new one, which is locked."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(_RANDOM_BYTES)}.new")
    file = LockedFile(temporary)
    try:
        file.write(content)
        temporary.replace(path)
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return file


def unwritable(config: Config) -> tuple[str, ...]:
    """Return one sentence for each output whose folder cannot be made or written.

    Creates nothing. The server starts nevertheless: a disk may come back, and writing is repeated.
    """
    folders = {
        "status_file": config.status_file and str(Path(config.status_file).parent),
        "trace.directory": config.trace.directory,
        "state_directory": config.state_directory,
        "state": config.state if config.state and "://" not in config.state else None,
    }
    found = []
    for key, folder in folders.items():
        if folder and (reason := _obstacle(Path(folder.replace("{pid}", str(os.getpid()))))):
            found.append(f"`{key}` cannot be written: {folder!r}: {reason}")
    return tuple(found)


def _obstacle(folder: Path) -> str:
    """Return why files cannot be made in a folder, which may not exist yet; empty if they can."""
    try:
        while not os.path.lexists(folder):
            folder = folder.parent
        if not folder.is_dir():
            return os.strerror(errno.ENOTDIR)
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
