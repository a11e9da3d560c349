"""Outputs of a configuration that cannot be written, said alike wherever somebody looks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from adaptive_spec.config import Config


def unwritable(config: Config) -> tuple[str, ...]:
    """Return one sentence for each output whose folder cannot be made or written.

    Creates nothing. The server starts nevertheless: a disk may come back, and writing is repeated.
    """
    folders = {
        "status_file": config.status_file and str(Path(config.status_file).parent),
        "trace.directory": config.trace.directory,
        "state_directory": config.state_directory,
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
