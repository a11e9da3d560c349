"""Functions of a decision that numba compiles at start-up and keeps on disk.

    @kernel("float64[:](float64[:, :], float64)")
    def scaled(values: FloatArray, factor: float) -> FloatArray:
        ...

Declaring a kernel compiles nothing and does not import numba. `load_kernels` compiles all kernels
that are declared, or reads them from disk; the controller asks for it before serving starts. A
kernel that is called earlier is compiled then.

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
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from adaptive_spec.errors import PolicyError, described

INTS, BOOLS = "Array(int64, 1, 'A', True)", "Array(boolean, 1, 'A', True)"
"""Types of arrays [B] that may be read-only, as the controller makes the limits of a plan."""
_P = ParamSpec("_P")
_R = TypeVar("_R")
_LOG = logging.getLogger(__name__)
_declared: list[Kernel[Any, Any]] = []


class Kernel(Generic[_P, _R]):
    """A function that is compiled before it runs.

    Attributes:
        function: the function as it is written.
    """

    def __init__(self, function: Callable[_P, _R], signature: str) -> None:
        self.function = function
        self._signature = signature
        self._compiled: Callable[..., _R] | None = None
        self._fault = ""
        functools.update_wrapper(self, function)
        _declared.append(self)

    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _R:
        """Run the compiled function. Raises PolicyError as `compile` does."""
        run = self._compiled or self.compile()
        try:
            return run(*arguments, **named)
        except TypeError:  # integers narrower than 64 bits, or arrays that are read-only
            return run(*map(_as_compiled_for, arguments), **named)

    def compile(self) -> Callable[..., _R]:
        """Return the compiled function; the first call compiles it or reads it from disk.

        Raises PolicyError, one line, if numba cannot be imported or cannot compile it.
        """
        if self._compiled is None:
            # What failed once fails again, and a decision has no time for another try.
            if self._fault:
                raise PolicyError(self._fault)
            try:
                self._compiled = compile_function(self.function, self._signature)
            except Exception as error:
                reason = " ".join(described(error).split())
                self._fault = f"numba, which compiles decisions, fails: {reason}"
                raise PolicyError(self._fault) from error
        return self._compiled


def kernel(signature: str) -> Callable[[Callable[_P, _R]], Kernel[_P, _R]]:
    """Declare the decorated function a kernel.

    Args:
        signature: types for numba, as in its documentation; ``float64[:, :]`` takes any layout.

    The function may call other kernels, and use constants of the policies: the disk cache goes by
    the content of their files.
    """
    return lambda function: Kernel(function, signature)


def load_kernels() -> None:
    """Compile all kernels declared so far. Not for the step path.

    Takes a second from the disk cache, some eleven without it. Raises PolicyError as
    `Kernel.compile` does.
    """
    for each in _declared:
        each.compile()


def compile_function(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    """Return a function compiled for these types, from the disk cache if possible.

    Raises what numba raises, ImportError without numba.
    """
    import numba

    linked, folder = _linked(function), cache_folder()
    if folder is not None:
        before = numba.config.CACHE_DIR
        try:
            numba.config.CACHE_DIR = str(folder / _source_digest(_reached(function)))
            return _njit(linked, signature, cache=True)
        except Exception as error:  # a cache that cannot be read or written is no reason to fail
            _LOG.debug("adaptive_spec: compiling without the disk cache: %s", error)
        finally:
            numba.config.CACHE_DIR = before
    return _njit(linked, signature, cache=False)


def _njit(function: Callable[..., Any], signature: str, *, cache: bool) -> Callable[..., Any]:
    import numba

    compiled: Callable[..., Any] = numba.njit(
        signature, cache=cache, nogil=True, error_model="numpy", boundscheck=False
    )(function)
    return compiled


def _called(function: Any) -> dict[str, Kernel[Any, Any]]:
    """Kernels that a function calls, by the name it calls them."""
    values = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {name: value for name, value in values.items() if isinstance(value, Kernel)}


def _reached(function: Any) -> set[Any]:
    """A function, and those of all kernels that it and they call."""
    inner = (_reached(each.function) for each in _called(function).values())
    return {function}.union(*inner)


def _linked(function: Any) -> Any:
    """Return the function with compiled functions in place of the kernels that it calls."""
    called = {name: each.compile() for name, each in _called(function).items()}
    if not called:
        return function
    return FunctionType(function.__code__, {**function.__globals__, **called}, function.__name__)


def _source_digest(functions: set[Any]) -> str:
    """Digest of the policies' files, whose constants a function may use, and of the functions' own.

    numba compares time and size, which images may hold fixed.
    """
    files = {Path(function.__code__.co_filename) for function in functions}
    return hashlib.sha256(_policies() + _content(files)).hexdigest()[:16]


@functools.cache
def _policies() -> bytes:
    return _content(set(Path(__file__).parent.rglob("*.py")))


def _content(files: set[Path]) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(files))


def _as_compiled_for(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray):
        return argument
    if argument.dtype.kind in "iu" and argument.dtype != np.int64:
        return argument.astype(np.int64)
    return argument if argument.flags.writeable else argument.copy()


def cache_folder() -> Path | None:
    """Return the cache folder, created if missing; None if other users can write it.

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
    """Return whether only this user, and root, can write to the folder, or replace it.

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
    """Return whether only this user and root can rename entries of the folder."""
    others_write = parent.st_mode & 0o022 and not parent.st_mode & stat.S_ISVTX
    return parent.st_uid in (0, user) and not others_write
