"""Laws of the time between two arrivals."""

from __future__ import annotations

import enum
import math

import numpy as np

from adaptive_spec.step import FloatArray


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
