"""A closed loop whose number of clients changes over time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from adaptive_spec.sim.load.arrivals import Piece, piecewise
from adaptive_spec.sim.load.request import Request


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

    def take(self) -> Request:
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
