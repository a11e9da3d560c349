"""Ramps, steps and bursts, and parts of a load.

The rate of a load is multiplied by a factor that varies over time.

The factor is given piece by piece, linear within a piece. Arrivals are moved by time-rescaling:
with F(t) the integral of the factor, an arrival of the base load at s comes at the t with
F(t) = s. So a Poisson process of rate 1 becomes one whose rate is the factor, a Gamma process
keeps its burstiness relative to the rate, and a recorded load plays faster and slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.request import Request


@dataclass(frozen=True)
class Piece:
    """A stretch of time over which a value goes from `start` to `end` in a straight line.

    Attributes:
        seconds: how long, > 0.
        start: value at its beginning, >= 0.
        end: value at its end, >= 0; a step of the value is a new piece.

    Raises ConfigError for values outside these ranges.
    """

    seconds: float
    start: float
    end: float

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise ConfigError(f"a piece must last more than 0 seconds, got {self.seconds:g}")
        for value in (self.start, self.end):
            if not (value >= 0 and math.isfinite(value)):
                raise ConfigError(f"the values of a piece must be 0 or more, got {value:g}")

    @property
    def integral(self) -> float:
        """Mean value times seconds."""
        return (self.start + self.end) / 2 * self.seconds


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
