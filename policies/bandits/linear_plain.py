"""The plain form of the linear bandits: one regression of the reward per K.

The reward of a step, tokens per second over what is usual at its load, is linear in the means of
the requests' features, with coefficients of its own for every K (disjoint LinUCB; Li, Chu,
Langford, Schapire, arXiv 1003.0146, algorithm 1).
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.policies.bandits.base import Decision, Draw
from adaptive_spec.policies.bandits.features import DIMENSIONS, RequestFeatures
from adaptive_spec.policies.bandits.request_cascade import Exploration
from adaptive_spec.policies.bandits.rewards import RewardScale, step_reward
from adaptive_spec.policies.bandits.ridge import RidgeRegressions
from adaptive_spec.policies.bandits.saved_arrays import Arrays
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import FloatArray, IntArray, StepContext, StepOutcome


class LinearLearner:
    """Regressions of the reward, one per arm.

    Args:
        arms: A.
        costs: for the time of prompts.
        exploration: how to depart from the means.
        discount: of an arm's evidence, per reward.
        ridge: strength of the guess that every reward is usual.
        random: of the samples.
    """

    def __init__(
        self,
        arms: int,
        costs: StepCosts,
        exploration: Exploration,
        *,
        discount: float,
        ridge: float,
        random: np.random.Generator,
    ) -> None:
        guess = np.zeros(DIMENSIONS)
        guess[0] = 1.0
        self._ridges = RidgeRegressions(
            arms, DIMENSIONS, ridge=ridge, discount=discount, guess=guess
        )
        self._costs = costs
        self._exploration = exploration
        self._random = random
        self._requests = RequestFeatures()
        self._scale = RewardScale()

    def features(self, context: StepContext) -> FloatArray:
        """[d] means over the batch."""
        return np.asarray(self._requests.of_requests(context).mean(axis=0))

    def draw(self, context: StepContext, load: int, features: FloatArray) -> Draw:
        """The arm of the largest upper bound, or of the largest sample."""
        bonus, sampling, _ = self._exploration
        if sampling > 0.0:
            value = self._ridges.sampled(sampling, self._random) @ features
            return Draw(int(np.argmax(value)), reason="best in a sample")
        row = features[None]
        value = self._ridges.mean(row)[:, 0] + bonus * self._ridges.deviation(row)[:, 0]
        return Draw(int(np.argmax(value)), reason="largest index")

    def learn(self, outcome: StepOutcome, decision: Decision | None, clean: bool) -> None:
        """Credit the arm with its step's reward."""
        self._requests.learn(outcome)
        if decision is None or not clean:
            return
        reward = step_reward(outcome, self._costs.prompt_seconds(outcome))
        if math.isnan(reward):
            return
        arms = len(self._ridges.moment)
        seen = (np.arange(arms) == decision.arm)[:, None]
        normalised = self._scale.normalised(decision.load, reward)
        self._ridges.learn(decision.features[None], np.full((arms, 1), normalised), seen)

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        self._requests.forget(slots)

    def arrays(self) -> Arrays:
        """The regressions' sums, and the usual rewards."""
        return {
            "gram": self._ridges.gram,
            "moment": self._ridges.moment,
            "reward_mean": self._scale.mean,
            "reward_count": self._scale.count,
        }

    def restored(self) -> None:
        """Coefficients follow from the sums."""
        self._ridges.solve()
