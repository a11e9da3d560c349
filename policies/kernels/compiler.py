"""Compilation by numba, with a cache on disk that only this user can write.

numba's cache is a pickle, so reading it runs code. It is kept in a folder of the user's own, and
only if nobody else can write there; otherwise each process compiles anew.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

_LOG = logging.getLogger(__name__)


def compile_loop(loop: Callable[..., Any], signature: str) -> Callable[..., Any]:
    """Return the loop compiled for these types, from the disk cache if possible."""
    import numba

    folder = cache_folder()
    if folder is not None:
        before = numba.config.CACHE_DIR
        try:
            numba.config.CACHE_DIR = str(folder / _source_digest(*_reached(loop)))
            return _compiled(_linked(loop), signature, cache=True)
        except Exception as error:  # a cache that cannot be read or written is no reason to fail
            _LOG.debug("adaptive_spec: compiling without the disk cache: %s", error)
        finally:
            numba.config.CACHE_DIR = before
    return _compiled(_linked(loop), signature, cache=False)


def _compiled(loop: Callable[..., Any], signature: str, *, cache: bool) -> Callable[..., Any]:
    import numba

    compiled: Callable[..., Any] = numba.njit(
        signature, cache=cache, nogil=True, error_model="numpy", boundscheck=False
    )(loop)
    return compiled


def _called(loop: Any) -> dict[str, Any]:
    """Loops of the kernels that a loop calls, by the name it calls them."""
    values = {name: loop.__globals__.get(name) for name in loop.__code__.co_names}
    return {name: value.loop for name, value in values.items() if hasattr(value, "reference")}


def _reached(loop: Any) -> set[Any]:
    """A loop, and all that it and those call."""
    return {loop}.union(*map(_reached, _called(loop).values()))


@functools.cache
def _linked(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop with the loops of kernels in place of the kernels that it calls."""
    from numba.extending import register_jitable

    called = {name: _linked(inner) for name, inner in _called(loop).items()}
    if called:
        loop = FunctionType(loop.__code__, {**loop.__globals__, **called}, loop.__name__)
    register_jitable(loop)
    return loop


def _source_digest(*loops: Any) -> str:
    """Digest of the files of loops; numba compares time and size, which images may hold fixed."""
    files = sorted({loop.__code__.co_filename for loop in loops})
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:16]


def cache_folder() -> Path | None:
    """Return the folder of compiled loops, created if missing; None if other users can write it.

    It lies in ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().resolve()
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = base / "adaptive-spec-kernels"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder if private(folder) else None
    except (OSError, RuntimeError):  # no home, or not writable
        return None


def private(folder: Path) -> bool:
    """Whether only this user, and root, can change what is in the folder, or replace the folder.

    Raises OSError if it cannot be read.
    """
    if not hasattr(os, "getuid"):
        return False
    user = os.getuid()
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        return False
    return all(_keeps_entries(parent.stat(), user) for parent in folder.parents)


def _keeps_entries(parent: os.stat_result, user: int) -> bool:
    """Whether only this user and root can rename entries of the folder."""
    others_write = parent.st_mode & 0o022 and not parent.st_mode & stat.S_ISVTX
    return parent.st_uid in (0, user) and not others_write
