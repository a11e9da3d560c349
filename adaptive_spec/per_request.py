"""Request slots and arrays with a row per slot: all state kept per live request.

`RequestSlots` assigns a small integer to a request at first sight and takes the integer back when
the request ends, so that memory is bounded by the number of simultaneous requests. A freed row is
reused last: a late outcome of an ended request cannot reach a new request's row. `SlotArray` keeps
rows for these slots and grows with them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from operator import gt
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.step import IntArray

_Number = TypeVar("_Number", np.float64, np.int64)


class RequestSlots:
    """Maps request ids to rows of the policies' arrays."""

    def __init__(self) -> None:
        self._slot_of: dict[str, int] = {}
        self._free: deque[int] = deque()
        self._size = 0
        self.released = 0
        """Slots that have been freed so far."""
        self.without_drafter: set[int] = set()
        """Slots of live requests that the drafter has lost."""
        self.unreadable = 0
        """Requests so far whose constants the adapter could not read."""

    def __len__(self) -> int:
        return len(self._slot_of)

    def __iter__(self) -> Iterator[str]:
        """Names of the requests that have a slot."""
        return iter(self._slot_of)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._slot_of

    @property
    def capacity(self) -> int:
        """Number of rows handed out so far; every slot is below it."""
        return self._size

    def assign(self, request_id: str) -> int:
        """Return the request's slot; a new request gets one."""
        slot = self._slot_of.get(request_id)
        if slot is None:
            # Keep a reserve of free rows so that a freed row is not reused at once.
            if len(self._free) > 16:
                slot = self._free.popleft()
            else:
                slot = self._size
                self._size += 1
            self._slot_of[request_id] = slot
        return slot

    def get(self, request_id: str) -> int | None:
        """Return the request's slot, or None for an unknown request."""
        return self._slot_of.get(request_id)

    def of(self, request_ids: Iterable[str]) -> list[int | None]:
        """Return the slot of each request, None for unknown ones."""
        return list(map(self._slot_of.get, request_ids))

    def release(self, request_id: str) -> int | None:
        """Free a request's slot and return it; None for an unknown request."""
        slot = self._slot_of.pop(request_id, None)
        if slot is not None:
            self._free.append(slot)
            self.released += 1
            self.without_drafter.discard(slot)
        return slot


class SlotArray(Generic[_Number]):
    """Rows [slots, *shape] that start at `fill`, grow with the slots in use and can be reset.

    Args:
        fill: value of an unwritten slot; its type is the array's.
        shape: shape of one row; empty for a number per slot.
    """

    def __init__(self, fill: _Number, shape: tuple[int, ...] = ()) -> None:
        self._fill: _Number = fill
        self._written = False
        self._rows: NDArray[_Number] = np.full((64, *shape), fill)

    def __getitem__(self, slots: IntArray) -> NDArray[_Number]:
        try:
            rows: NDArray[_Number] = self._rows[slots]
        except IndexError:
            self._reach(highest_of(slots))
            rows = self._rows[slots]
        return rows

    def __setitem__(self, slots: IntArray, values: NDArray[_Number] | _Number | float) -> None:
        self._written = True
        try:
            self._rows[slots] = values
        except IndexError:
            self._reach(highest_of(slots))
            self._rows[slots] = values

    def reaching(self, highest: int) -> NDArray[_Number]:
        """Return the underlying array, grown to hold this slot; growth replaces the array."""
        self._written = True
        self._reach(highest)
        return self._rows

    @property
    def rows(self) -> NDArray[_Number]:
        """Whole underlying array."""
        return self._rows

    def reset(self, slots: IntArray, fill: _Number | None = None) -> None:
        """Reset these slots to the array's fill or to the given one."""
        if self._written or fill is not None:
            self[slots] = self._fill if fill is None else fill

    def _reach(self, highest: int) -> None:
        missing = highest + 1 - len(self._rows)
        if missing > 0:
            shape = (max(missing, len(self._rows)), *self._rows.shape[1:])
            self._rows = np.concatenate((self._rows, np.full(shape, self._fill)))


_FEW = 48
"""Rows up to which a list is reduced faster than an array, which takes microseconds."""


def highest_of(rows: IntArray) -> int:
    """The highest of these numbers; -1 without any."""
    if len(rows) > _FEW:
        return int(np.maximum.reduce(rows))
    return max(rows.tolist(), default=-1)


def lowest_of(rows: NDArray[_Number]) -> float:
    """The lowest of these numbers; infinite without any."""
    if len(rows) > _FEW:
        return np.minimum.reduce(rows)  # type: ignore[no-any-return]
    return min(rows.tolist(), default=math.inf)


def sum_of(rows: IntArray) -> int:
    """The sum of these numbers."""
    return int(np.add.reduce(rows)) if len(rows) > _FEW else sum(rows.tolist())


def exceeds(rows: IntArray, limits: IntArray) -> bool:
    """Return whether any number is above its limit."""
    if len(rows) > _FEW:
        return bool(np.logical_or.reduce(rows > limits))
    return any(map(gt, rows.tolist(), limits.tolist()))


def floats(fill: float, *shape: int) -> SlotArray[np.float64]:
    """Create a slot array of float64."""
    return SlotArray(np.float64(fill), shape)


def integers(fill: int, *shape: int) -> SlotArray[np.int64]:
    """Create a slot array of int64."""
    return SlotArray(np.int64(fill), shape)
