"""Contract of a load, and the two plain loads."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Protocol

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.request import Request


class Load(Protocol):
    """A source of requests in order of arrival."""

    closed: bool
    """A request enters when another ends; throughput is then what the engine can do."""
    endless: bool
    """It never ends by itself: a run needs a limit."""

    def next_arrival(self) -> float:
        """Seconds at which the next request arrives; inf if none will, unless one finishes."""
        ...

    def take(self) -> Request:
        """The request that arrives next. Only valid while `next_arrival` is finite."""
        ...

    def finished(self, request: Request, now: float) -> None:
        """A request has ended."""
        ...


class OpenLoad:
    """Requests that come when they come, whatever the engine does.

    Args:
        requests: in order of arrival; read one ahead, so a file need not fit in memory.
        endless: they never end.
    """

    closed = False

    def __init__(self, requests: Iterator[Request], *, endless: bool = False) -> None:
        self.endless = endless
        self._requests = requests
        self._next = next(requests, None)

    def next_arrival(self) -> float:
        """Arrival of the next request, seconds."""
        return math.inf if self._next is None else self._next.arrival

    def take(self) -> Request:
        """The next one."""
        request = self._next
        assert request is not None
        self._next = next(self._requests, None)
        return request

    def finished(self, request: Request, now: float) -> None:
        """Ignore the end of a request."""


class ClosedLoad:
    """A fixed number of clients, each sending its next request when its last one has ended.

    Args:
        requests: the requests, in the order they are sent; their arrival times are not used.
            The load ends with them.
        concurrency: number of clients, >= 1.
        endless: the requests never end.

    Raises ConfigError if there is no client.
    """

    closed = True

    def __init__(
        self, requests: Iterator[Request], concurrency: int, *, endless: bool = False
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"a closed load needs at least one client, got {concurrency}")
        self.endless = endless
        self._requests = requests
        self._next = next(requests, None)
        self._due = deque([0.0] * concurrency)

    def next_arrival(self) -> float:
        """Time of the next request of any client."""
        return self._due[0] if self._due and self._next is not None else math.inf

    def take(self) -> Request:
        """The next request, arriving now."""
        request = self._next
        assert request is not None
        self._next = next(self._requests, None)
        return msgspec.structs.replace(request, arrival=self._due.popleft())

    def finished(self, request: Request, now: float) -> None:
        """Its client sends the next one at once."""
        self._due.append(now)
