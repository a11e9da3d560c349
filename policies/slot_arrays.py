"""Arrays with a row per request slot, for policies that keep something per request."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.values import IntArray

_Number = TypeVar("_Number", np.float64, np.int64)


class SlotArray(Generic[_Number]):
    """Rows [slots, *shape] that begin at `fill`, grow with the slots in use and can be reset.

    Args:
        fill: value of a slot nobody has written to; its type is the array's.
        shape: of one row; empty: a number per slot.
    """

    def __init__(self, fill: _Number, shape: tuple[int, ...] = ()) -> None:
        self._fill: _Number = fill
        self._rows: NDArray[_Number] = np.full((64, *shape), fill)

    def __getitem__(self, slots: IntArray) -> NDArray[_Number]:
        try:
            rows: NDArray[_Number] = self._rows[slots]
        except IndexError:
            self._reach(slots)
            rows = self._rows[slots]
        return rows

    def __setitem__(self, slots: IntArray, values: NDArray[_Number] | _Number) -> None:
        try:
            self._rows[slots] = values
        except IndexError:
            self._reach(slots)
            self._rows[slots] = values

    def reset(self, slots: IntArray, fill: _Number | None = None) -> None:
        """These slots begin anew, at the array's fill or this one."""
        self[slots] = self._fill if fill is None else fill

    def _reach(self, slots: IntArray) -> None:
        missing = int(slots.max(initial=-1)) + 1 - len(self._rows)
        if missing > 0:
            shape = (max(missing, len(self._rows)), *self._rows.shape[1:])
            self._rows = np.concatenate((self._rows, np.full(shape, self._fill)))


def floats(fill: float, *shape: int) -> SlotArray[np.float64]:
    """A slot array of float64."""
    return SlotArray(np.float64(fill), shape)


def integers(fill: int, *shape: int) -> SlotArray[np.int64]:
    """A slot array of int64."""
    return SlotArray(np.int64(fill), shape)
