"""When requests arrive: at a steady rate, or at one that varies over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.request import Request

LEAST_CV, MOST_CV = 0.01, 100.0
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
NonNegative = Annotated[float, msgspec.Meta(ge=0, le=1e12)]

_BLOCK = 1024
_LEAST_LUMPED = 100
"""Requests from which on lumps can be told from chance."""


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of time over which a value goes from `start` to `end` in a straight line.

    Attributes:
        seconds: how long, > 0.
        start: value at its beginning, >= 0; `from` in a description.
        end: value at its end, >= 0; `to` in a description. A step of the value is a new piece.
        at: both, instead of them.
    """

    seconds: Positive
    start: NonNegative = msgspec.field(default=-1.0, name="from")
    end: NonNegative = msgspec.field(default=-1.0, name="to")
    at: NonNegative | None = None

    def __post_init__(self) -> None:
        given = [value >= 0 for value in (self.start, self.end)]
        if any(given) if self.at is not None else not all(given):
            raise ValueError("a piece has `seconds` and either `at` or `from` and `to`")
        if self.at is not None:
            msgspec.structs.force_setattr(self, "start", self.at)
            msgspec.structs.force_setattr(self, "end", self.at)

    @property
    def integral(self) -> float:
        """Mean value times seconds."""
        return (self.start + self.end) / 2 * self.seconds


def gamma_arrivals(rate: float, cv: float, random: np.random.Generator) -> Iterator[float]:
    """Endless arrival times, seconds: independent Gamma intervals, the process stationary from 0.

    Stationary means that the expected number of arrivals in t seconds is rate * t from the
    start. An interval that began before 0 is likelier a long one: its law is Gamma with shape + 1
    (length-biased), and 0 falls uniformly within it.

    Args:
        rate: arrivals per second, > 0.
        cv: standard deviation over mean of the intervals, 0.01 to 100; 1 is Poisson.
        random: where they come from.

    Raises ConfigError if rate or CV is outside its range.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise ConfigError(f"the rate of arrivals must be above 0, got {rate:g}")
    if not LEAST_CV <= cv <= MOST_CV:
        raise ConfigError(f"the CV of arrivals must be {LEAST_CV:g} to {MOST_CV:g}, got {cv:g}")
    return _gamma_arrivals(rate, 1 / (cv * cv), random)


def arriving(requests: Iterator[Request], times: Iterator[float]) -> Iterator[Request]:
    """The requests, each arriving at its time; ends with the shorter of the two."""
    for time, request in zip(times, requests, strict=False):
        yield msgspec.structs.replace(request, arrival=time)


def _gamma_arrivals(rate: float, shape: float, random: np.random.Generator) -> Iterator[float]:
    now = float(random.gamma(shape + 1, 1 / shape) * random.uniform()) / rate
    yield now
    while True:
        times = random.gamma(shape, 1 / shape, size=_BLOCK)
        times = now + np.cumsum(times) / rate
        now = float(times[-1])
        yield from times.tolist()


def piecewise(pieces: Sequence[Piece], *, repeat: bool) -> Iterator[Piece]:
    """The pieces one after another; with `repeat`, over and over.

    Raises ConfigError if there are none, or if they repeat and nothing ever arrives.
    """
    if not pieces:
        raise ConfigError("a shape needs at least one piece")
    if repeat and not any(piece.integral for piece in pieces):
        raise ConfigError("a shape that repeats needs a piece above 0")
    return _piecewise(pieces, repeat)


def random_bursts(
    every: float, seconds: float, factor: float, random: np.random.Generator
) -> Iterator[Piece]:
    """Endless: factor 1, and now and then a burst; both last exponentially distributed times.

    Args:
        every: mean seconds from the end of a burst to the next one.
        seconds: mean length of a burst.
        factor: during a burst, > 0.
        random: where the times come from.
    """
    while True:
        yield Piece(_above_zero(every, random), 1.0, 1.0)
        yield Piece(_above_zero(seconds, random), factor, factor)


def reshaped(requests: Iterator[Request], pieces: Iterator[Piece]) -> Iterator[Request]:
    """The requests with their rate multiplied by the pieces; ends with the last piece.

    Args:
        requests: in order of arrival.
        pieces: the factor over time, from 0.
    """
    began = passed = 0.0
    """When the piece began, and how much of the base load's time had passed by then."""
    piece = next(pieces, None)
    for request in requests:
        while piece is not None and request.arrival > passed + piece.integral:
            began += piece.seconds
            passed += piece.integral
            piece = next(pieces, None)
        if piece is None:
            return
        within = _time_of(piece, request.arrival - passed)
        yield msgspec.structs.replace(request, arrival=began + within)


def sliced(
    requests: Iterator[Request], *, skip: float = 0.0, first: float = math.inf, rate: float = 1.0
) -> Iterator[Request]:
    """Requests that arrive in skip <= t < skip + first, with (t - skip) / rate as their arrival.

    Args:
        requests: in order of arrival; read no further than needed.
        skip: seconds of the load to leave out at its start.
        first: seconds of the load to keep after that.
        rate: how many times faster they come, > 0.
    """
    for request in requests:
        if request.arrival < skip:
            continue
        since = request.arrival - skip
        if since >= first:
            return
        yield msgspec.structs.replace(request, arrival=since / rate)


def lump_seconds(times: Sequence[float]) -> float:
    """Return the seconds to which times are rounded, or 0.

    Args:
        times: seconds, in order; the first ones of a load.

    Rounded are 100 times or more that are shared by 2 or more in the mean and, most of them, stand
    one and the same second or more apart (10 ms more or less).
    """
    distinct = np.unique(np.asarray(times, dtype=np.float64))
    if len(times) < _LEAST_LUMPED or 2 * distinct.size > len(times) or distinct.size < 3:
        return 0.0
    gaps = np.diff(distinct)
    usual = float(np.median(gaps))
    even = np.abs(gaps - usual) <= 0.01
    return round(usual, 2) if usual >= 1.0 and float(even.mean()) >= 0.8 else 0.0


def spread_lumps(
    requests: Iterator[Request], seconds: float, random: np.random.Generator
) -> Iterator[Request]:
    """The requests of each lump at uniform times in the `seconds` from its own time on, in order.

    Args:
        requests: in order of arrival.
        seconds: lumps stand so far apart, or farther.
        random: where the times come from.
    """
    last = 0.0
    for arrival, lump in groupby(requests, key=lambda request: request.arrival):
        members = list(lump)
        offsets = np.sort(random.uniform(0.0, seconds, len(members)))
        for request, offset in zip(members, offsets.tolist(), strict=True):
            last = max(last, arrival + offset)  # lumps may be some milliseconds closer
            yield msgspec.structs.replace(request, arrival=last)


def _time_of(piece: Piece, amount: float) -> float:
    """Seconds into a piece until its integral is `amount`."""
    slope = (piece.end - piece.start) / piece.seconds
    # The stable form of the root of start t + slope t^2 / 2 = amount.
    root = math.sqrt(max(piece.start**2 + 2 * slope * amount, 0.0))
    divisor = piece.start + root
    return min(2 * amount / divisor, piece.seconds) if divisor > 0 else 0.0


def _piecewise(pieces: Sequence[Piece], repeat: bool) -> Iterator[Piece]:
    yield from pieces
    while repeat:
        yield from pieces


def _above_zero(mean: float, random: np.random.Generator) -> float:
    return max(float(random.exponential(mean)), 1e-9)
