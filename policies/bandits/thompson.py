"""`thompson`: the K that is best in a sample of the posterior.

Thompson sampling (Thompson, 1933; Agrawal, Goyal, arXiv 1209.3353) on evidence that fades (Raj,
Kalyani, arXiv 1707.09727). Cascade form: hazard j ~ Beta(a + successes, b + failures), one sample
for all positions, and the K of the most expected tokens per second under it. Plain form: the mean
reward of K ~ N(mean_k, sd^2 / n_k).

How likely an arm is to be best in a sample has no closed form. With `uniform_fraction` above 0 an
arm is drawn from the best arms of 64 samples, and evenly with that probability: then every arm has
a known probability, which is recorded, and traces can be evaluated off-policy.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.bandits.arms import arms_of
from adaptive_spec.policies.bandits.base import (
    BanditOptions,
    BanditPolicy,
    Discount,
    Draw,
    Fraction,
    Learner,
)
from adaptive_spec.policies.bandits.cascade_form import CascadeLearner, HazardMemory
from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.bandits.plain_form import ArmCounts, IndexLearner
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import Capability, FloatArray, StepContext

_SAMPLES = 64
_PRIOR_SUCCESSES, _PRIOR_FAILURES = 2.0, 1.0


class ThompsonOptions(BanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `thompson`."""

    discount: Discount = 0.998
    """Of the evidence, per step that is learned from."""
    uniform_fraction: Fraction = 0.0
    """Share of draws made evenly among all K; above 0 propensities are recorded."""


class ThompsonPolicy(BanditPolicy):
    """Thompson sampling over K."""

    name: ClassVar[str] = "thompson"
    summary: ClassVar[str] = "bandit: the best K in a sample of the hazards' posterior"
    Options: ClassVar[type[msgspec.Struct]] = ThompsonOptions

    def __init__(self, options: ThompsonOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options

    def make_learner(self, capability: Capability, costs: StepCosts) -> Learner:
        """Beta posteriors, or Gaussian ones of each K."""
        arms = arms_of(capability)
        discount, even = self._options.discount, self._options.uniform_fraction
        if not self._options.cascade:
            memory = ArmCounts(len(arms), discount)
            return _GaussianLearner(memory, costs, self._random, even)
        samples = _SAMPLES if even > 0.0 else 1
        return CascadeLearner(
            arms,
            HazardCounts(capability.max_draft_tokens, discount=discount),
            costs,
            partial(_sampled, self._random, samples),  # no closure: a copy has its own generator
            self._random,
            uniform_fraction=even,
        )


def _sampled(random: np.random.Generator, samples: int, memory: HazardMemory) -> FloatArray:
    """[samples, Kmax] hazards, drawn from their posterior."""
    failed = np.maximum(memory.seen - memory.succeeded, 0.0)
    succeeded = np.maximum(memory.succeeded, 0.0)
    size = (samples, len(failed))
    return random.beta(succeeded + _PRIOR_SUCCESSES, failed + _PRIOR_FAILURES, size)


class _GaussianLearner(IndexLearner):
    """Samples the mean reward of every K."""

    def __init__(
        self, memory: ArmCounts, costs: StepCosts, random: np.random.Generator, even: float
    ) -> None:
        super().__init__(memory, costs, exploration=0.0)
        self._random = random
        self._even = even

    def draw(self, context: StepContext, load: int, features: FloatArray) -> Draw:
        """The best arm in a sample; arms without a reward first."""
        count = self.memory.count[load]
        if (count < 1.0).all():
            return Draw(int(self._random.integers(len(count))), reason="first trial")
        known = np.maximum(count, 1e-9)
        mean, spread = self.normalised(load)
        # An arm that was never tried is like the others, and as uncertain as one reward.
        mean = np.where(count < 1e-3, 1.0, mean)
        deviation = max(spread, 0.05) / np.sqrt(np.maximum(known, 0.25))
        samples = _SAMPLES if self._even > 0.0 else 1
        best = np.argmax(self._random.normal(mean, deviation, (samples, len(count))), axis=1)
        if self._even <= 0.0:
            return Draw(int(best[0]), reason="best in a sample")
        share = np.bincount(best, minlength=len(count)) / samples
        probabilities = self._even / len(count) + (1.0 - self._even) * share
        arm = int(self._random.choice(len(count), p=probabilities / probabilities.sum()))
        return Draw(arm, probabilities, "drawn from samples")
