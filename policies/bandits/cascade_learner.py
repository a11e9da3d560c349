"""Learner of most bandits: hazards by position, shared by all K, and step times from a cost model.

The value of K is sum_i (1 + sum_{j <= K} s_j) / T(K), with s_j the product of the first j hazards.
Each bandit supplies the hazards to plan with: upper confidence bounds, or a sample of the
posterior. Both favour deeper positions, which are observed less often; every K observes the shallow
ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from adaptive_spec.policies.bandits.base import Decision, Draw
from adaptive_spec.policies.bandits.saved_arrays import Arrays
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import FloatArray, IntArray, StepContext, StepOutcome

_CEILING = 0.995
_MEASURE_EVERY_DRAWS = 2
HAZARD_WIDTH = 0.2
"""Width of the hazards' confidence bounds. Small, because survival is a product of bounds, so that
optimism multiplies.
"""


class HazardMemory(Protocol):
    """Successes and observations [Kmax] of each position, and the number of observed steps."""

    succeeded: FloatArray
    seen: FloatArray
    steps: FloatArray

    def learn(self, verified: IntArray, accepted: IntArray) -> None:
        """Learn from one step's outcomes, [B] each."""
        ...


class CascadeLearner:
    """Learner that draws the K with the most expected tokens per second under given hazards.

    Args:
        arms: [A] K values.
        memory: observed hazards.
        costs: step times.
        hazards: returns the hazards to plan with, [Kmax], or [M, Kmax] for M samples, one of which
            is drawn.
        random: generator of the sample.
        uniform_fraction: probability of a uniform draw instead; above 0 every arm has a known
            probability.
    """

    def __init__(
        self,
        arms: IntArray,
        memory: HazardMemory,
        costs: StepCosts,
        hazards: Callable[[HazardMemory], FloatArray],
        random: np.random.Generator,
        *,
        uniform_fraction: float = 0.0,
        after_restore: Callable[[], None] | None = None,
    ) -> None:
        self._arms = arms
        self.memory = memory
        self._costs = costs
        self._hazards = hazards
        self._random = random
        self._uniform_fraction = uniform_fraction
        self._after_restore = after_restore
        self._draws = 0

    def draw(self, context: StepContext, load: int) -> Draw:
        """Draw the best arm under the bounds or under a sample."""
        self._draws += 1
        if not self._costs.ready:
            return self._unmeasured(context, None) or Draw(len(self._arms) - 1, reason="first step")
        hazard = np.minimum(self._hazards(self.memory), _CEILING)
        goodput = self._costs.goodput(context, np.cumprod(hazard, axis=-1), self._arms)
        plain = goodput if goodput.ndim == 1 else goodput.mean(axis=0)
        if self._draws % _MEASURE_EVERY_DRAWS == 0:
            measuring = self._unmeasured(context, plain)
            if measuring is not None:
                return measuring
        if goodput.ndim == 1:
            return Draw(int(np.argmax(goodput)), reason="largest bound")
        return self._sampled(goodput)

    def learn(self, outcome: StepOutcome, decision: Decision | None) -> None:
        """Learn from the observed positions of any plan."""
        self.memory.learn(outcome.verified, outcome.accepted)

    def arrays(self) -> Arrays:
        """Return the hazards' arrays."""
        return {
            "succeeded": self.memory.succeeded,
            "seen": self.memory.seen,
            "steps": self.memory.steps,
        }

    def restored(self) -> None:
        """Notify the memory of a restore."""
        if self._after_restore is not None:
            self._after_restore()

    def _unmeasured(self, context: StepContext, goodput: FloatArray | None) -> Draw | None:
        index = self._costs.unmeasured(context, self._arms, goodput)
        return None if index is None else Draw(index, reason="measuring its time")

    def _sampled(self, goodput: FloatArray) -> Draw:
        """Draw among the samples' best arms [M, A], each sample equally likely."""
        best = np.argmax(goodput, axis=1)
        even = self._uniform_fraction
        if even <= 0.0:
            return Draw(int(best[0]), reason="best in a sample")
        share = np.bincount(best, minlength=len(self._arms)) / len(best)
        probabilities = even / len(self._arms) + (1.0 - even) * share
        arm = int(self._random.choice(len(self._arms), p=probabilities / probabilities.sum()))
        return Draw(arm, probabilities, "drawn from samples")


def upper_bounds(exploration: float) -> Callable[[HazardMemory], FloatArray]:
    """Return a function of [Kmax] bounds mean + exploration * sqrt(ln t / n).

    t is the number of observed steps, n the number of observations of the position.
    """

    def bounds(memory: HazardMemory) -> FloatArray:
        seen = np.maximum(memory.seen, 1e-9)
        logarithm = math.log(max(float(memory.steps[0]), 1.0) + 1.0)
        mean = np.where(memory.seen > 0.0, memory.succeeded / seen, 1.0)
        bound: FloatArray = mean + exploration * np.sqrt(logarithm / seen)
        return np.minimum(bound, 1.0)

    return bounds
