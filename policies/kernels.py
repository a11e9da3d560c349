"""Functions of a decision that numba compiles at start-up and keeps on disk.

    @Kernel
    def scaled(values: Matrix, factor: float) -> Vector:
        ...

Annotations are the types that a kernel is compiled for: numbers, tuples, and the arrays below.
Declaring a kernel compiles nothing and does not import numba. `load_kernels` compiles all kernels
that are declared, or reads them from disk; the controller asks for it before serving starts. A
kernel that is called earlier is compiled then. Kernels may call each other.

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
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, get_args, get_type_hints

import numpy as np

from adaptive_spec.errors import PolicyError, described
from adaptive_spec.step import BoolArray, FloatArray, IntArray

Vector = Annotated[FloatArray, "float64[::1]"]
Matrix = Annotated[FloatArray, "float64[:, ::1]"]
Cube = Annotated[FloatArray, "float64[:, :, ::1]"]
Integers = Annotated[IntArray, "int64[::1]"]
Limits = Annotated[IntArray, "Array(int64, 1, 'A', True)"]
"""Integers [B] that may be read-only, as the controller makes the limits of a plan."""
Rows = Annotated[BoolArray, "Array(boolean, 1, 'A', True)"]
"""[B] whether each request is one of some, likewise."""
_NUMBERS = {float: "float64", int: "int64", bool: "boolean", type(None): "void"}
_P = ParamSpec("_P")
_R = TypeVar("_R")
_LOG = logging.getLogger(__name__)
_declared: list[Kernel[Any, Any]] = []


class Kernel(Generic[_P, _R]):
    """A function that is compiled before it runs.

    Attributes:
        function: the function as it is written.
    """

    def __init__(self, function: Callable[_P, _R]) -> None:
        self.function = function
        self._compiled: Callable[..., _R] | None = None
        self._fault = ""
        functools.update_wrapper(self, function)
        _declared.append(self)

    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _R:
        """Run the compiled function. Raises PolicyError as `compile` does."""
        run = self._compiled or self.compile()
        try:
            return run(*arguments, **named)
        except TypeError:  # narrower integers, read-only arrays, or rows that are not contiguous
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
                self._compiled = compile_function(self.function)
            except Exception as error:
                reason = " ".join(described(error).split())
                self._fault = f"numba, which compiles decisions, fails: {reason}"
                raise PolicyError(self._fault) from error
        return self._compiled


def load_kernels() -> None:
    """Compile all kernels declared so far. Not for the step path.

    Takes a second from the disk cache, some eleven without it. Raises PolicyError as
    `Kernel.compile` does.
    """
    for each in _declared:
        each.compile()


def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for the types of its annotations, from the disk cache if possible.

    Raises what numba raises, ImportError without numba.
    """
    import numba

    def compiled(*, cache: bool) -> Callable[..., Any]:
        options = {"cache": cache, "nogil": True, "error_model": "numpy"}
        found: Callable[..., Any] = numba.njit(_signature(function), **options)(linked)
        return found

    linked, folder = _linked(function), cache_folder()
    if folder is not None:
        before = numba.config.CACHE_DIR
        try:
            numba.config.CACHE_DIR = str(folder / _content_of_policies())
            return compiled(cache=True)
        except Exception as error:  # a cache that cannot be read or written is no reason to fail
            _LOG.debug("adaptive_spec: compiling without the disk cache: %s", error)
        finally:
            numba.config.CACHE_DIR = before
    return compiled(cache=False)


def _signature(function: Callable[..., Any]) -> str:
    hints = get_type_hints(function, include_extras=True)
    result = _compiled_type(hints.pop("return"))
    return f"{result}({', '.join(map(_compiled_type, hints.values()))})"


def _compiled_type(hint: Any) -> str:
    if given := _NUMBERS.get(hint):
        return given
    if hasattr(hint, "__metadata__"):
        return str(hint.__metadata__[0])
    return f"Tuple(({', '.join(map(_compiled_type, get_args(hint)))}))"


def _linked(function: Any) -> Any:
    """Return the function with compiled functions in place of the kernels that it calls."""
    values = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    called = {name: each.compile() for name, each in values.items() if isinstance(each, Kernel)}
    if not called:
        return function
    return FunctionType(function.__code__, {**function.__globals__, **called}, function.__name__)


@functools.cache
def _content_of_policies() -> str:
    """Return a digest: numba goes by time and size of one file, which images may hold fixed."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _as_compiled_for(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray):
        return argument
    kind = np.int64 if argument.dtype.kind in "iu" else argument.dtype
    return np.require(argument, kind, ["C", "W"])


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
