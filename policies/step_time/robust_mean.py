"""A robust running mean of steps that are alike: same load, K, depth, and size of prompts."""

from __future__ import annotations

import math

from adaptive_spec.step import FloatArray

MOST_EVIDENCE = 32
"""Steps that a cell counts for at most."""
_MEDIAN_OF = 5
_SETTLED = 16
"""Steps whose mean the later ones are held against."""


class StepCell:
    """The median of the first few steps, then a mean that no single step moves far.

    Attributes:
        features: mean of the steps' features.
        seconds: their duration.
        count: how many they were.
        weight: the cell's weight in a fit; whoever fits keeps it here.
        moved: logarithm by which the last step has moved the mean.
        settled: features, seconds and relative spread after the first steps, which do not follow
            the later ones; None before.
    """

    __slots__ = ("_first", "_spread", "count", "features", "moved", "seconds", "settled", "weight")

    def __init__(self, features: FloatArray, seconds: float) -> None:
        self.features = features
        self.seconds = seconds
        self.count = 1
        self.weight = self.moved = 0.0
        self.settled: tuple[FloatArray, float, float] | None = None
        self._spread = 0.1 * seconds
        self._first = [seconds]

    def add(self, off: FloatArray, seconds: float, expected: float) -> None:
        """Take up another step.

        Args:
            off: the step's features minus their mean.
            seconds: that it took.
            expected: seconds by which it is expected to differ from the mean, by its features.
        """
        self.count += 1
        rate = 1.0 / min(self.count, MOST_EVIDENCE)
        self.features = self.features + rate * off
        # A prediction that is wrong must not leave steps of no length.
        expected = min(max(expected, -0.5 * self.seconds), 0.5 * min(self.seconds, seconds))
        # Its time with the mean features, and where the mean goes because these have moved.
        alike, shift = seconds - expected, rate * expected
        if self.count <= _MEDIAN_OF:
            self._first = sorted(each + shift for each in (*self._first, alike))
            # The lower middle: what disturbs a step makes it longer, never shorter.
            self.seconds = self._first[(self.count - 1) // 2]
            self._spread = max(self.seconds - self._first[0], 0.02 * self.seconds)
            return
        error = alike - self.seconds
        bound = 3.0 * self._spread
        # A step that is far off moves the mean by at most the bound; if it was no accident, the
        # spread grows and the next ones move it further.
        moved = max(rate, 0.05) * min(max(error, -bound), bound)
        self.seconds += shift + moved
        self.moved = math.log(self.seconds / (self.seconds - moved))
        limit = 6.0 * self._spread
        self._spread += 0.1 * (min(abs(error), limit) - self._spread)
        self._spread = max(self._spread, 0.005 * self.seconds)
        if self.count == _SETTLED:
            self.settled = self.features, self.seconds, self._spread / self.seconds

    def age(self, factor: float) -> None:
        """Steps have changed by about this factor: the next one starts afresh."""
        self.seconds *= factor
        self.count = 0
        self.settled = None
