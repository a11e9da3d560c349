"""Confidence intervals of estimates from correlated steps.

Neighbouring steps share requests, held draws and load, so their errors are correlated. Steps are
cut into blocks longer than a request lives; what the blocks contribute is close to independent, and
Student's t over the blocks gives the interval (batch means: Conway, Management Science 10, 1963).
An empirical-Bernstein bound would need independent terms and a bound on them, which is the largest
weight: it is many times wider. Requests are no blocks: the seconds of a step belong to all of them.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.step import FloatArray, IntArray

_MOST_BLOCKS, _FEWEST_BLOCKS = 50, 10
_SHORTEST_BLOCK = 16


class Estimate(msgspec.Struct, frozen=True):
    """A value and its confidence interval."""

    value: float
    low: float
    high: float


class Linearised(NamedTuple):
    """An estimate that is a smooth function of sums over steps (delta method).

    Attributes:
        value: the estimate.
        influence: [steps] its derivative along each step's terms.
        extra_variance: of the estimate, from what is common to all steps.
    """

    value: float
    influence: FloatArray
    extra_variance: float = 0.0

    def interval(self, block: IntArray, confidence: float) -> Estimate:
        """With blocks from `block_of_step`, at a confidence such as 0.95."""
        blocks = int(block[-1]) + 1
        sums = np.bincount(block, weights=self.influence, minlength=blocks)
        variance = float(np.sum((sums - sums.mean()) ** 2)) * blocks / max(blocks - 1, 1)
        variance += self.extra_variance
        half = student_t(confidence, blocks - 1) * variance**0.5
        return Estimate(self.value, self.value - half, self.value + half)

    def with_added(self, cost: Linearised) -> Linearised:
        """Return 1 / (1 / self + cost): the rate if every unit costs `cost` seconds more."""
        value = self.value / (1.0 + cost.value * self.value)
        influence = value**2 * (self.influence / self.value**2 - cost.influence)
        return Linearised(value, influence, (value / self.value) ** 4 * self.extra_variance)

    def over(self, other: Linearised) -> Linearised:
        """The ratio of two estimates from the same steps: what they share cancels."""
        value = self.value / other.value
        influence = value * (self.influence / self.value - other.influence / other.value)
        extra = self.extra_variance / self.value**2 + other.extra_variance / other.value**2
        return Linearised(value, influence, value**2 * extra)


def ratio(above: FloatArray, below: FloatArray, below_variance: float = 0.0) -> Linearised:
    """Sum over sum; `below_variance`: what is common to all steps adds to that of the lower."""
    total = float(below.sum())
    value = float(above.sum()) / total
    influence = (above - value * below) / total
    return Linearised(value, influence, value**2 * below_variance / total**2)


def block_of_step(steps: int, request_steps: float) -> IntArray:
    """[steps] number of each step's block.

    Args:
        steps: how many.
        request_steps: steps that a request usually lives; blocks are twice as long, unless fewer
            than ten would be left.
    """
    length = max(_SHORTEST_BLOCK, round(2.0 * request_steps), -(-steps // _MOST_BLOCKS))
    blocks = max(steps // length, min(_FEWEST_BLOCKS, steps))
    return np.arange(steps) * blocks // steps


def student_t(confidence: float, degrees: int) -> float:
    """Two-sided quantile of Student's t; good to 1 % from 5 degrees of freedom.

    Expansion around the normal quantile (Abramowitz and Stegun, 26.7.5).
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / degrees + second / degrees**2 + third / degrees**3
