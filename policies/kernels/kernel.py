"""One inner loop of a decision in two forms: numpy's, which defines it, and a compiled loop.

Both forms agree within rounding: their sums may run in different orders. Ties are broken by
counting in both. Only what a decision spends its time in has two forms: hazards and what is learned
of a step, ranking and admitting drafts, and the step-time curve with its fit.

Declaring a kernel compiles nothing and does not import numba. Policies that use kernels call
`load_kernels` when they are built. It compiles all kernels declared so far, or loads them from the
disk cache. Before that, and where numba is missing, numpy's forms run.

    @kernel("float64[:](float64[:, :], float64)", _scaled_loop)
    def scaled(values: FloatArray, factor: float) -> FloatArray:
        ...
"""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import numpy as np

from adaptive_spec.errors import ConfigError, missing_extra
from adaptive_spec.policies.kernels.compiler import compile_loop

KernelName = Literal["auto", "numpy", "numba"]
INTS, BOOLS = "Array(int64, 1, 'A', True)", "Array(boolean, 1, 'A', True)"
"""Types of arrays [B] that may be read-only, as the controller makes the limits of a plan."""
_P = ParamSpec("_P")
_R = TypeVar("_R")
_LOG = logging.getLogger(__name__)
_declared: list[Kernel[Any, Any]] = []
_wanted: KernelName = "numpy"


class Kernel(Generic[_P, _R]):
    """A computation that runs in numpy until its loop is compiled.

    Attributes:
        reference: the form in numpy.
        loop: the form to compile, plain Python until then.
        active: the compiled loop; None while numpy's form runs.
    """

    def __init__(self, reference: Callable[_P, _R], loop: Callable[_P, _R], signature: str) -> None:
        self.reference, self.loop = reference, loop
        self.active: Callable[..., _R] | None = None
        self._signature = signature
        self._compiled: Callable[_P, _R] | None = None
        functools.update_wrapper(self, reference)
        _declared.append(self)

    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _R:
        """Run the compiled loop, or numpy's form without one."""
        if self.active is None:
            return self.reference(*arguments, **named)
        try:
            return self.active(*arguments, **named)
        except TypeError:  # integers narrower than 64 bits, or arrays that are read-only
            return self.active(*map(_as_compiled_for, arguments))

    def compile(self) -> Callable[_P, _R]:
        """Return the loop that the first call compiles or loads from disk."""
        if self._compiled is None:
            self._compiled = compile_loop(self.loop, self._signature)
        return self._compiled

    def use(self, *, compiled: bool) -> None:
        """Run the compiled loop from now on, or numpy's form."""
        self.active = self.compile() if compiled else None


def kernel(signature: str, loop: Callable[_P, _R]) -> Callable[[Callable[_P, _R]], Kernel[_P, _R]]:
    """Declare the decorated numpy function a kernel.

    Args:
        signature: types for numba, as in its documentation; ``float64[:, :]`` takes any layout.
        loop: the same computation as a loop over numbers, which numba can compile. It may use
            constants of its own file only: the disk cache goes by the content of that file.
    """
    return lambda reference: Kernel(reference, loop, signature)


def kernel_of_kernels(signature: str) -> Callable[[Callable[_P, _R]], Kernel[_P, _R]]:
    """Declare a function that calls other kernels a kernel, itself in both forms.

    It is compiled with the loops of those; the disk cache goes by their files, too.
    """
    return lambda both: Kernel(both, both, signature)


def numba_available() -> bool:
    """Whether numba is installed; numba is not imported."""
    return importlib.util.find_spec("numba") is not None


def select_kernel(name: KernelName) -> None:
    """Choose which form `load_kernels` puts to use; ``numpy`` returns to numpy at once.

    ``auto`` is numba where it is installed. Raises ConfigError for ``numba`` without numba.
    """
    global _wanted
    if name == "numba" and not numba_available():
        raise missing_extra("`kernel` needs numba", "fast")
    _wanted = name
    if name == "numpy":
        for each in _declared:
            each.use(compiled=False)


def load_kernels() -> None:
    """Compile all kernels declared so far, unless numpy is selected. Not for the step path.

    Takes about a second from the disk cache, several without one. Raises ConfigError if ``numba``
    is selected and fails; under ``auto`` numpy is used then.
    """
    if _wanted == "numpy" or not numba_available():
        return
    try:
        for each in _declared:
            each.use(compiled=True)
    except Exception as error:
        required = _wanted == "numba"
        select_kernel("numpy")
        if required:
            raise ConfigError(f"`kernel`: numba cannot compile: {error}") from error
        _LOG.warning("adaptive_spec: decisions run in numpy, numba cannot compile: %s", error)


def prepare_kernels(name: KernelName) -> None:
    """Select a form, compile what it needs, and let nothing compile from here on but that form.

    A policy that is switched to while serving takes what is loaded. Raises ConfigError as
    `select_kernel` and `load_kernels` do.
    """
    select_kernel(name)
    load_kernels()
    select_kernel(kernel_in_use())


def kernel_in_use() -> Literal["numpy", "numba"]:
    """The form that runs: ``numba`` once any kernel is compiled and in use."""
    return "numba" if any(each.active is not None for each in _declared) else "numpy"


def _as_compiled_for(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray):
        return argument
    if argument.dtype.kind in "iu" and argument.dtype != np.int64:
        return argument.astype(np.int64)
    return argument if argument.flags.writeable else argument.copy()
