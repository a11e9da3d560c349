"""State as named arrays: conversion to JSON, and validated loading."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import State
from adaptive_spec.step import FloatArray, IntArray

Arrays = Mapping[str, FloatArray | IntArray]


def to_state(arrays: Arrays) -> State:
    """Convert to nested lists of numbers with six significant digits."""
    return {
        name: array.tolist()
        if array.dtype.kind == "i"
        else _rounded(array.astype(np.float64)).tolist()
        for name, array in arrays.items()
    }


def check_schema(state: State, owner: str) -> None:
    """Raise PolicyError unless a bandit saved the state."""
    if state.get("schema") != 1 or "learned" not in state:
        raise PolicyError(f"{owner} state: schema 1 with `learned` expected")


def fill(arrays: Arrays, state: object, owner: str) -> None:
    """Write a saved state into the arrays, in place, or change nothing.

    Raises PolicyError naming the owner and the array that is missing, of another shape (a server
    with another Kmax) or not finite.
    """
    if not isinstance(state, Mapping):
        raise PolicyError(f"{owner} state: an object is expected, got {type(state).__name__}")
    checked = {}
    for name, array in arrays.items():
        if name not in state:
            raise PolicyError(f"{owner} state: `{name}` is missing")
        try:
            value = np.asarray(state[name], dtype=array.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise PolicyError(f"{owner} state: `{name}` is not made of numbers") from error
        if value.shape != array.shape:
            raise PolicyError(
                f"{owner} state: `{name}` has shape {value.shape}, not {array.shape}: state of "
                "an engine with another Kmax or ladder"
            )
        if not np.isfinite(value).all():
            raise PolicyError(f"{owner} state: `{name}` has values that are not finite")
        if value.dtype.kind == "i" and (value < 0).any():
            raise PolicyError(f"{owner} state: `{name}` are counts and must not be negative")
        checked[name] = value
    for name, value in checked.items():
        arrays[name][...] = value


def _rounded(array: FloatArray) -> FloatArray:
    """Round to six significant digits, which keeps a state small."""
    with np.errstate(divide="ignore"):
        digits = np.where(array == 0.0, 1.0, np.abs(array))
    scale = 10.0 ** (5 - np.floor(np.log10(digits)))
    rounded: FloatArray = np.round(array * scale) / scale
    return rounded
