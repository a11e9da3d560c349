"""A load of whole batches: each begins when every request of the one before has ended."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from adaptive_spec.sim.load.request import Request


class Batches:
    """Requests in groups, as benchmark scripts submit them.

    Args:
        requests: in order; a last group may be smaller.
        batch_size: requests of a group.
    """

    closed = True
    endless = False

    def __init__(self, requests: Iterator[Request], batch_size: int) -> None:
        self._requests = requests
        self._next = next(requests, None)
        self._batch_size = batch_size
        self._taken = self._running = 0
        self._begins = 0.0

    def next_arrival(self) -> float:
        """When the next of this group arrives: with the group, or never before it has ended."""
        if self._next is None or self._taken == self._batch_size:
            return math.inf
        return self._begins

    def take(self) -> Request:
        """The next request of the group."""
        request = self._next
        assert request is not None
        self._next = next(self._requests, None)
        self._taken += 1
        self._running += 1
        return msgspec.structs.replace(request, arrival=self._begins)

    def finished(self, request: Request, now: float) -> None:
        """The last of a group lets the next group begin."""
        self._running -= 1
        if self._running == 0:
            self._taken = 0
            self._begins = now
