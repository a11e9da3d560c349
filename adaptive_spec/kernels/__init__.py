"""The inner loops of a decision, in numpy and compiled by numba.

Both give the same plans to the last bit: sums run in the same order and ties are broken by
counting. The compiled one is made when an engine starts, never on the step path.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Literal, NamedTuple, TypeAlias

from adaptive_spec.errors import ConfigError
from adaptive_spec.kernels import numpy_kernel
from adaptive_spec.step import BoolArray, FloatArray, IntArray

AdmitFunction: TypeAlias = Callable[
    [FloatArray, IntArray, IntArray, float, FloatArray, FloatArray, IntArray],
    tuple[IntArray, int, float, float],
]
LearnFunction: TypeAlias = Callable[
    [
        FloatArray,
        IntArray,
        IntArray,
        FloatArray,
        FloatArray,
        IntArray,
        FloatArray,
        FloatArray,
        float,
        float,
    ],
    None,
]
FollowFunction: TypeAlias = Callable[
    [FloatArray, IntArray, IntArray, FloatArray, FloatArray, FloatArray, float, float], float
]
AbsorbFunction: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray, float, float], None]
DescendFunction: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], None]
HazardsFunction: TypeAlias = Callable[[FloatArray, float, float], None]
SurviveFunction: TypeAlias = Callable[[FloatArray], None]
JudgeFunction: TypeAlias = Callable[
    [
        int,
        FloatArray,
        float,
        float,
        FloatArray,
        FloatArray,
        FloatArray,
        float,
        BoolArray,
        FloatArray,
        BoolArray,
    ],
    tuple[BoolArray, BoolArray],
]
PassedOverFunction: TypeAlias = Callable[
    [FloatArray, IntArray, IntArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray, bool]
]
WeighFunction: TypeAlias = Callable[
    [FloatArray, FloatArray, FloatArray, IntArray, FloatArray, FloatArray, float, float, float],
    None,
]
PoolFunction: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray, float, float], None]
FollowMeansFunction: TypeAlias = Callable[
    [FloatArray, IntArray, FloatArray, FloatArray, float], None
]
RoundMeansFunction: TypeAlias = Callable[[FloatArray], FloatArray]
TellFunction: TypeAlias = Callable[
    [FloatArray, FloatArray, BoolArray, FloatArray, FloatArray, FloatArray, FloatArray, float],
    None,
]
TallyFunction: TypeAlias = Callable[[FloatArray, IntArray, IntArray, FloatArray], None]
WorthFunction: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
StepCurveFunction: TypeAlias = Callable[
    [FloatArray, FloatArray, FloatArray, float, float, float], FloatArray
]


class Kernel(NamedTuple):
    """The functions of one implementation; see `numpy_kernel` for what they do."""

    name: str
    admit: AdmitFunction
    learn: LearnFunction
    follow: FollowFunction
    absorb: AbsorbFunction
    descend: DescendFunction
    hazards: HazardsFunction
    survive: SurviveFunction
    judge: JudgeFunction
    passed_over: PassedOverFunction
    weigh: WeighFunction
    pool: PoolFunction
    follow_means: FollowMeansFunction
    round_means: RoundMeansFunction
    tell: TellFunction
    tally: TallyFunction
    worth: WorthFunction
    step_curve: StepCurveFunction


def _kernel(name: str, module: ModuleType) -> Kernel:
    return Kernel(name, *(getattr(module, function) for function in Kernel._fields[1:]))


NUMPY = _kernel("numpy", numpy_kernel)
_active = NUMPY


def numba_available() -> bool:
    """Whether numba is installed; asking does not import it."""
    return importlib.util.find_spec("numba") is not None


def select_kernel(name: Literal["auto", "numpy", "numba"]) -> Kernel:
    """Choose the implementation for this process; compiles it if it is the compiled one.

    Raises ConfigError for ``numba`` without numba; ``auto`` falls back to numpy.
    """
    global _active
    if name == "numba" and not numba_available():
        raise ConfigError("`kernel`: numba is not installed; pip install 'adaptive-spec[fast]'")
    if name == "numpy" or not numba_available():
        _active = NUMPY
        return _active
    try:
        from adaptive_spec.kernels import numba_kernel
    except Exception as error:
        if name == "numba":
            raise ConfigError(f"`kernel`: numba cannot compile: {error}") from error
        _active = NUMPY
        return _active
    _active = _kernel("numba", numba_kernel)
    return _active


def active_kernel() -> Kernel:
    """The implementation in use."""
    return _active
