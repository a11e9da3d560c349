"""Results kept on disk between processes, as JSON in a folder that only this user can write.

Nothing depends on them: what is missing, damaged or of another form is computed anew, and a folder
that cannot be used is no fault.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import decode_json, read_small_file

_MOST_FILES = 64
_MOST_BYTES = 4 << 20


def kept_path(kind: str, key: str) -> Path | None:
    """Return where the result of a key is kept; None where there is no home.

    That is in ``$XDG_CACHE_HOME/adaptive-spec-KIND``, or in ``~/.cache``.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        return None
    return base / f"adaptive-spec-{kind}" / f"{key}.json"


def read_kept(path: Path | None, type_: Any) -> Any:
    """Return a kept result as a value of this type; None without one that can be used."""
    try:
        if path is None or not _is_private(path.parent):
            return None
        return decode_json(read_small_file(path, _MOST_BYTES), type_)
    except (OSError, ValueError):
        return None


def keep(path: Path | None, value: object) -> bool:
    """Keep a result; the oldest of its kind make room. Return whether it could be written."""
    if path is None:
        return False
    part = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(path.parent):
            return False
        part.write_bytes(msgspec.json.encode(value))
        part.replace(path)
        others = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime_ns)
        for other in others[:-_MOST_FILES]:
            other.unlink()
    except (OSError, msgspec.MsgspecError, TypeError):
        return False
    return True


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    own = found.st_uid == os.getuid() if hasattr(os, "getuid") else True
    return own and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022
