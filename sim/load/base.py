"""Contract of a load; open and closed loads, changing concurrency, and tenants together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.arrivals import Piece, piecewise
from adaptive_spec.sim.load.description import Tenant
from adaptive_spec.sim.load.request import ANY_RECORD, Request

_FOREVER = 1e12
"""Seconds that no run lasts."""


class Load(Protocol):
    """A source of requests in order of arrival."""

    closed: bool
    """A request enters when another ends; throughput is then what the engine can do."""
    endless: bool
    """It never ends by itself: a run needs a limit."""

    def next_arrival(self) -> float:
        """Seconds at which the next request arrives; inf if none will, unless one finishes."""
        ...

    def take_request(self) -> Request:
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

    def take_request(self) -> Request:
        """The next one."""
        request = self._next
        assert request is not None
        self._next = next(self._requests, None)
        return request

    def finished(self, request: Request, now: float) -> None:
        """Ignore the end of a request."""


class VaryingClosedLoad:
    """Clients that come and go; each sends its next request when its last one has ended.

    The number of clients follows the pieces, rounded to the nearest whole number. A new client
    sends at once; one too many leaves when its request has ended. After the last piece all leave.

    Args:
        requests: the requests, in the order they are sent; their arrival times are not used.
            The load ends with them.
        pieces: the number of clients over time, from 0.
        repeat: begin again after the last piece.
        endless: the requests never end.

    Raises ConfigError if there are no pieces, or if they repeat and there never is a client.
    """

    closed = True

    def __init__(
        self,
        requests: Iterator[Request],
        pieces: Sequence[Piece],
        *,
        repeat: bool = False,
        endless: bool = False,
    ) -> None:
        self.endless = endless and repeat
        self._requests = requests
        self._next = next(requests, None)
        self._changes = _changes(piecewise(pieces, repeat=repeat))
        self._ahead: deque[tuple[float, int]] = deque()
        """Changes read and not yet reached."""
        self._most = max(_whole(max(piece.start, piece.end)) for piece in pieces)
        self._wanted = 0
        self._clients = 0
        self._due: deque[float] = deque()
        self._reach(0.0)

    def next_arrival(self) -> float:
        """Time of the next request of a present or new client."""
        if self._next is None:
            return math.inf
        # Changes up to the latest of these times are reached: a new client comes later.
        return self._due[0] if self._due else self._next_client()

    def take_request(self) -> Request:
        """The next request, arriving now."""
        request = self._next
        assert request is not None
        self._next = next(self._requests, None)
        if not self._due:
            self._reach(self._next_client())
        return msgspec.structs.replace(request, arrival=self._due.popleft())

    def finished(self, request: Request, now: float) -> None:
        """Its client sends the next one at once, or leaves if there is one too many."""
        self._reach(now)
        if self._clients > self._wanted:
            self._clients -= 1
        else:
            self._due.append(now)

    def _next_client(self) -> float:
        """Time at which the number of clients next exceeds those present."""
        if self._clients >= self._most:
            return math.inf
        for time, wanted in self._ahead:
            if wanted > self._clients:
                return time
        for time, wanted in self._changes:
            self._ahead.append((time, wanted))
            if wanted > self._clients:
                return time
        return math.inf

    def _reach(self, now: float) -> None:
        """Let clients come by all changes up to now."""
        while True:
            if not self._ahead:
                change = next(self._changes, None)
                if change is None:
                    return
                self._ahead.append(change)
            if self._ahead[0][0] > now:
                return
            time, self._wanted = self._ahead.popleft()
            while self._clients < self._wanted:
                self._clients += 1
                self._due.append(time)


class ClosedLoad(VaryingClosedLoad):
    """A fixed number of clients, each sending its next request when its last one has ended.

    Args:
        requests: the requests, in the order they are sent; their arrival times are not used.
            The load ends with them.
        concurrency: number of clients, >= 1.
        endless: the requests never end.

    Raises ConfigError if there is no client.
    """

    def __init__(
        self, requests: Iterator[Request], concurrency: int, *, endless: bool = False
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"a closed load needs at least one client, got {concurrency}")
        always = Piece(seconds=_FOREVER, at=concurrency)
        super().__init__(requests, (always,), repeat=True, endless=endless)


def _changes(pieces: Iterator[Piece]) -> Iterator[tuple[float, int]]:
    """(time, number of clients from then on), in order of time; 0 clients at the end."""
    began = 0.0
    for piece in pieces:
        first, last = _whole(piece.start), _whole(piece.end)
        yield began, first
        if first != last:
            per_client = piece.seconds / (piece.end - piece.start)
            step = 1 if last > first else -1
            for clients in range(first + step, last + step, step):
                # Half-way between two whole numbers.
                border = clients - step / 2
                yield began + (border - piece.start) * per_client, clients
        began += piece.seconds
    yield began, 0


def _whole(value: float) -> int:
    return math.floor(value + 0.5)


class TenantMix:
    """A load in which the requests of all tenants come in order of arrival.

    Open and closed tenants may be mixed; with one closed tenant the mix counts as closed, since
    the server then always has work. On a tie the tenant named first goes first.

    Args:
        tenants: each with its load.

    Raises ConfigError if there are no tenants, or two of one name.
    """

    def __init__(self, tenants: Sequence[tuple[Tenant, Load]]) -> None:
        if not tenants:
            raise ConfigError("a mix needs at least one tenant")
        names = [tenant.name for tenant, _ in tenants]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two tenants are named {name!r}")
        self.closed = any(load.closed for _, load in tenants)
        self.endless = any(load.endless for _, load in tenants)
        self._tenants = tuple(tenants)
        self._under_way: dict[str, tuple[Load, Request]] = {}
        """By the id the server sees: whose load it is, and the request as that made it."""

    def next_arrival(self) -> float:
        """Arrival of the next request of any tenant."""
        return min(load.next_arrival() for _, load in self._tenants)

    def take_request(self) -> Request:
        """Return that request."""
        tenant, load = min(self._tenants, key=lambda each: each[1].next_arrival())
        own = load.take_request()
        request = _sent(tenant, own)
        self._under_way[request.id] = (load, own)
        return request

    def finished(self, request: Request, now: float) -> None:
        """Report the end of a request to its tenant."""
        load, own = self._under_way.pop(request.id)
        load.finished(own, now)


def _sent(tenant: Tenant, request: Request) -> Request:
    """A request of a tenant's load as the server sees it."""
    task = request.task if tenant.task is None else tenant.task
    target, temperature = tenant.tpot_ms, tenant.temperature
    return msgspec.structs.replace(
        request,
        id=f"{tenant.name}/{request.id}",
        task=task,
        record=request.record if task == request.task else ANY_RECORD,
        tpot_target=request.tpot_target if target is None else target / 1e3,
        temperature=request.temperature if temperature is None else temperature,
    )
