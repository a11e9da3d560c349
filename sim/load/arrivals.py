"""Laws of the time between two arrivals, and arrivals at a constant rate."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator

import msgspec
import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.request import Request
from adaptive_spec.step import FloatArray

LEAST_CV, MOST_CV = 0.01, 100.0

_BLOCK = 1024


class IntervalLaw(enum.StrEnum):
    """Families of inter-arrival times."""

    EXPONENTIAL = "exponential"
    GAMMA = "gamma"
    WEIBULL = "weibull"


def unit_intervals(
    law: IntervalLaw, shape: float, count: int, random: np.random.Generator
) -> FloatArray:
    """[count] independent times with mean 1.

    Args:
        law: the family.
        shape: of Gamma or Weibull, > 0; below 1 is burstier than Poisson. Exponential has none.
        count: how many.
        random: where they come from.
    """
    if law is IntervalLaw.EXPONENTIAL:
        return random.exponential(size=count)
    if law is IntervalLaw.GAMMA:
        return random.gamma(shape, 1 / shape, size=count)
    # The mean of a Weibull law with scale 1 is gamma(1 + 1 / shape).
    unscaled = random.weibull(shape, size=count)
    return unscaled * math.exp(-math.lgamma(1 + 1 / shape))


def gamma_shape(cv: float) -> float:
    """Shape of the Gamma law with this coefficient of variation: 1 / CV^2."""
    return 1 / (cv * cv)


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
    return _gamma_arrivals(rate, gamma_shape(cv), random)


def arriving(requests: Iterator[Request], times: Iterator[float]) -> Iterator[Request]:
    """The requests, each arriving at its time; ends with the shorter of the two."""
    for time, request in zip(times, requests, strict=False):
        yield msgspec.structs.replace(request, arrival=time)


def _gamma_arrivals(rate: float, shape: float, random: np.random.Generator) -> Iterator[float]:
    now = float(random.gamma(shape + 1, 1 / shape) * random.uniform()) / rate
    yield now
    while True:
        times = unit_intervals(IntervalLaw.GAMMA, shape, _BLOCK, random)
        times = now + np.cumsum(times) / rate
        now = float(times[-1])
        yield from times.tolist()
