"""Clients in the manner of ServeGen: each with its own rate and law of intervals.

The table has one row per client and window of time:
``client,window_start_s,rate_rps,cv,iat_dist,shape,scale``. In a window a client sends as many
requests as its rate says (a fraction is rounded up or down at random, in proportion), at intervals
of its law stretched to fill the window; a rate measured over a window is a count, and laws with a
CV of 100 would not keep to it otherwise. The shape comes from the table, or from the CV where
there is none; the scale follows from the rate. Source of method and format: ServeGen,
github.com/alibaba/ServeGen.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.load.arrivals import IntervalLaw, gamma_shape, unit_intervals
from adaptive_spec.sim.load.text_file import Row, table_rows
from adaptive_spec.step import FloatArray

COLUMNS = ("client", "window_start_s", "rate_rps", "cv", "iat_dist")
WINDOW_SECONDS = 600.0
_MOST_IN_WINDOW = 10_000_000
_LAWS = {
    "gamma": IntervalLaw.GAMMA,
    "weibull": IntervalLaw.WEIBULL,
    "expon": IntervalLaw.EXPONENTIAL,
    "exponential": IntervalLaw.EXPONENTIAL,
}
_ORDER = tuple(IntervalLaw)


class Client:
    """Rate and law of intervals of one client, window by window. Compact: 4 numbers a window."""

    def __init__(self) -> None:
        self._windows = array("d")

    def add(self, start: float, rate: float, law: IntervalLaw, shape: float) -> None:
        """One window; they are added in order of time."""
        self._windows.extend((start, rate, _ORDER.index(law), shape))

    @property
    def first_start(self) -> float:
        """Start of the earliest window."""
        return self._windows[0]

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._windows) // 4

    def arrivals(self, random: np.random.Generator) -> Iterator[float]:
        """Arrival times in order, one window in memory at a time."""
        flat = self._windows
        for at in range(0, len(flat), 4):
            start, rate, law, shape = flat[at : at + 4]
            count = math.floor(rate * WINDOW_SECONDS + random.uniform())
            if count:
                within = spread(_ORDER[int(law)], shape, count, random)
                yield from (start + WINDOW_SECONDS * within).tolist()


def spread(law: IntervalLaw, shape: float, count: int, random: np.random.Generator) -> FloatArray:
    """[count] ascending times in 0..1 whose intervals follow the law.

    The intervals are laid around a circle of length 1 that is cut at a random point, so that no
    part of a window is favoured.
    """
    ends = np.cumsum(unit_intervals(law, shape, count, random))
    total = float(ends[-1])
    # Intervals of a very bursty law can all underflow: one burst.
    around = ends / total if total > 0 else np.ones(count)
    return np.sort((around + random.uniform()) % 1.0)


def read_clients(path: Path) -> list[Client]:
    """Return the clients of a rate table, in order of first appearance.

    The table (CSV, plain or gzip) is held in memory, 32 bytes a row; requests are not. Raises
    DataError with file and row, or if no client sends anything.
    """
    clients: dict[str, Client] = {}
    latest: dict[str, float] = {}
    for row in table_rows(path, COLUMNS):
        name = row.values["client"].strip()
        begin, rate = row.real("window_start_s"), row.real("rate_rps")
        if begin < latest.get(name, -math.inf) + WINDOW_SECONDS:
            row.wrong(
                f"`window_start_s` of client {name!r} is less than {WINDOW_SECONDS:g} s after its "
                "last one"
            )
        latest[name] = begin
        if rate * WINDOW_SECONDS > _MOST_IN_WINDOW:
            row.wrong(f"`rate_rps` is {rate:g}: over {_MOST_IN_WINDOW:,} requests in a window")
        law, shape = _law(row)
        if rate > 0:
            clients.setdefault(name, Client()).add(begin, rate, law, shape)
    if not clients:
        raise DataError(f"{path}: no client sends anything")
    return list(clients.values())


def client_arrivals(clients: Sequence[Client], random: np.random.Generator) -> Iterator[float]:
    """Arrival times of all clients, merged in order; time 0 is the first window's start.

    Memory: one window of arrivals per client.
    """
    origin = min(client.first_start for client in clients)
    own = random.spawn(len(clients))
    streams = [client.arrivals(each) for client, each in zip(clients, own, strict=True)]
    for time in heapq.merge(*streams):
        yield time - origin


def _law(row: Row) -> tuple[IntervalLaw, float]:
    name = row.values["iat_dist"].strip()
    law = _LAWS.get(name.lower())
    if law is None:
        row.wrong(f"`iat_dist` is {name!r}, not Gamma, Weibull or Exponential")
    if law is IntervalLaw.EXPONENTIAL:
        return law, 1.0
    if row.values.get("shape", "").strip():
        shape = row.real("shape")
    elif law is IntervalLaw.GAMMA:
        cv = row.real("cv")
        shape = gamma_shape(cv) if cv > 0 else 0.0
    else:
        row.wrong("a Weibull law needs the column `shape`")
    if not 1e-3 <= shape <= 1e6:
        row.wrong(f"the shape of the intervals is {shape:g}, outside 0.001..1,000,000")
    return law, shape
