"""`exp3`: exponential weights, without assumptions about the rewards.

p_k = (1 - gamma) w_k / sum w + gamma / A, and w_k <- w_k exp(eta x_k) with x_k an unbiased estimate
of the reward (Auer, Cesa-Bianchi, Freund, Schapire, SIAM J. Computing 32, 2002). Then a share alpha
of the total weight is spread evenly, which follows changes (EXP3.S, section 8 there). Rewards are
taken relative to their usual value, which changes no probability and lowers the variance.

Verifying K shows the tokens that every K' <= K would have emitted, at a predicted time, so the
rewards of all K' are known, and x_k' = (r_k' - 1) / sum_{k >= k'} p_k (Exp3-SET; Alon,
Cesa-Bianchi, Gentile, Mansour, arXiv 1307.4564).

The probabilities are known, so every step's propensity is recorded.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.bandits.arms import LOAD_BINS, arms_of
from adaptive_spec.policies.bandits.base import (
    BanditOptions,
    BanditPolicy,
    Decision,
    Draw,
    Fraction,
    Learner,
)
from adaptive_spec.policies.bandits.hazards import survival_counts
from adaptive_spec.policies.bandits.rewards import RewardScale
from adaptive_spec.policies.bandits.saved_arrays import Arrays
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import Capability, FloatArray, StepContext, StepOutcome

_SPAN = 12.0
"""Largest log-ratio of two weights; smaller weights are held at e^-12 of the largest."""


class Exp3Options(BanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `exp3`."""

    gamma: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.05
    """gamma, share of uniform draws among all K."""
    rate: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.3
    """eta, the learning rate."""
    share: Fraction = 0.001
    """alpha, the share of weight spread evenly after each reward."""


class Exp3Policy(BanditPolicy):
    """EXP3 over K."""

    name: ClassVar[str] = "exp3"
    summary: ClassVar[str] = "bandit: exponential weights, with recorded propensities"
    Options: ClassVar[type[msgspec.Struct]] = Exp3Options

    def __init__(self, options: Exp3Options, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options

    def make_learner(self, capability: Capability, costs: StepCosts) -> Learner:
        """Build weights by load and arm."""
        return _Weights(self._options, capability, costs, self._random)


class _Weights:
    """Exponential weights [LOAD_BINS, A], stored as logarithms."""

    def __init__(
        self,
        options: Exp3Options,
        capability: Capability,
        costs: StepCosts,
        random: np.random.Generator,
    ) -> None:
        self._options = options
        self._kmax = capability.max_draft_tokens
        self._arms = arms_of(capability)
        self._costs = costs
        self._random = random
        self._scale = RewardScale()
        self._log_weight: FloatArray = np.zeros((LOAD_BINS, len(self._arms)))

    def draw(self, context: StepContext, load: int) -> Draw:
        """Draw an arm by its weight."""
        probabilities = self._probabilities(load)
        arm = int(self._random.choice(len(self._arms), p=probabilities))
        return Draw(arm, probabilities, "drawn by weight")

    def learn(self, outcome: StepOutcome, decision: Decision | None) -> None:
        """Update the weights with the rewards that the step has shown."""
        if decision is None or decision.probabilities is None:
            return
        gain = self._shown(outcome, decision)
        if gain is None:
            return
        row = self._log_weight[decision.load]
        row += self._options.rate * np.clip(gain, -10.0, 10.0)
        row -= row.max()
        weight = np.exp(np.maximum(row, -_SPAN))
        weight = (1.0 - self._options.share) * weight + self._options.share * weight.mean()
        row[:] = np.log(weight)

    def arrays(self) -> Arrays:
        """Return the weights and the usual rewards."""
        return {
            "log_weight": self._log_weight,
            "reward_mean": self._scale.mean,
            "reward_count": self._scale.count,
        }

    def restored(self) -> None:
        """Do nothing: no value is derived from the arrays."""

    def _probabilities(self, load: int) -> FloatArray:
        weight = np.exp(self._log_weight[load])
        even = self._options.gamma
        probabilities: FloatArray = (1.0 - even) * weight / weight.sum() + even / len(weight)
        probabilities /= probabilities.sum()
        return probabilities

    def _shown(self, outcome: StepOutcome, decision: Decision) -> FloatArray | None:
        """Return [A] gains of every K up to the one that ran, at predicted times."""
        if not self._costs.ready or decision.probabilities is None:
            return None
        batch = len(outcome.slots)
        accepted = _padded_sum(survival_counts(outcome.accepted, self._kmax))[self._arms]
        drafts = _padded_sum(survival_counts(outcome.verified, self._kmax))[self._arms]
        seconds = self._costs.seconds(
            batch, outcome.context_tokens, drafts.astype(np.int64), self._arms
        )
        reward = (batch + accepted) / (batch * seconds)
        shown = np.arange(len(self._arms)) <= decision.arm
        # Normalise by the usual reward of the load, from the same predictions.
        usual = self._scale
        normalised_own = usual.normalised(decision.load, float(reward[decision.arm]))
        mean = max(float(usual.mean[decision.load]), 1e-12)
        normalised = np.minimum(reward / mean, 4.0)
        normalised[decision.arm] = normalised_own
        deeper = np.cumsum(decision.probabilities[::-1])[::-1]
        gain: FloatArray = np.where(shown, (normalised - 1.0) / deeper, 0.0)
        return gain


def _padded_sum(by_position: FloatArray) -> FloatArray:
    """Return [Kmax + 1] sums of the first 0..Kmax entries."""
    return np.concatenate([[0.0], np.cumsum(by_position)])
