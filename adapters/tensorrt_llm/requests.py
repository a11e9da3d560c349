"""What is known about a live request besides its tokens, in arrays by slot.

A freed slot's row is overwritten by its next request: nothing is left of a finished one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.per_request import RequestSlots
from adaptive_spec.step import FloatArray, IntArray


class RequestTable:
    """Rows of live requests.

    Attributes:
        drafted: [slot] drafts made for the request when it last ran; 0 if that was not seen.
            The lists upstream keeps don't say it: they are padded, and one iteration behind
            under the overlap scheduler.
        temperature: [slot] sampling temperature.
        names: requests that have a slot.
    """

    def __init__(self, slots: RequestSlots) -> None:
        self._slots = slots
        self.names: set[str] = set()
        self.drafted: IntArray = np.zeros(0, dtype=np.int64)
        self.temperature: FloatArray = np.zeros(0)

    def slot_of(self, request: Any) -> int:
        """The request's slot; a request seen for the first time gets one."""
        name = name_of(request)
        slot = self._slots.get(name)
        return self._enter(name, request) if slot is None else slot

    def ran(self, slots: IntArray, prefilled: list[Any], k: int) -> None:
        """An iteration drafts K for all that decode, and for prompts that end in it."""
        self.drafted[slots] = k
        for request in prefilled:
            slot = self.slot_of(request)  # may grow the array
            self.drafted[slot] = k

    def lose_track(self) -> None:
        """An iteration ran that was not followed: how many drafts it made is not known."""
        self.drafted[:] = 0

    def _enter(self, name: str, request: Any) -> int:
        slot = self._slots.assign(name)
        self.names.add(name)
        if slot >= len(self.drafted):
            extra = 2 * slot + 64 - len(self.drafted)
            self.drafted = np.append(self.drafted, np.zeros(extra, dtype=np.int64))
            self.temperature = np.append(self.temperature, np.zeros(extra))
        self.drafted[slot] = 0
        self.temperature[slot] = temperature_of(request)
        return slot


def name_of(request: Any) -> str:
    """The engine's own name of a request."""
    return str(request.py_request_id)


def temperature_of(request: Any) -> float:
    """Sampling temperature of the target; 0 (greedy) where none is given."""
    given = getattr(getattr(request, "sampling_config", None), "temperature", None)
    if isinstance(given, list):
        given = given[0] if given else None
    return float(given) if given is not None else 0.0


def is_real(request: Any) -> bool:
    """Not one of upstream's dummies, which fill up graphs and idle ranks."""
    return not getattr(request, "is_dummy", False)
