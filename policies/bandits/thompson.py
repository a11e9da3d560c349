"""`thompson`: the best K under a sample of the posterior.

Thompson sampling (Thompson, 1933; Agrawal, Goyal, arXiv 1209.3353) on discounted evidence (Raj,
Kalyani, arXiv 1707.09727): hazard j ~ Beta(a + successes, b + failures), one sample for all
positions, and the K with the most expected tokens per second under the sample.

The probability that an arm is best in a sample has no closed form. With `uniform_fraction` above 0,
the policy draws an arm from the best arms of 64 samples, or uniformly with that probability. Every
arm then has a known probability, which is recorded for off-policy evaluation.
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
    Fraction,
    Learner,
)
from adaptive_spec.policies.bandits.cascade_learner import CascadeLearner, HazardMemory
from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import Capability, FloatArray

_SAMPLES = 64
_PRIOR_SUCCESSES, _PRIOR_FAILURES = 2.0, 1.0


class ThompsonOptions(BanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `thompson`."""

    discount: Discount = 0.998
    """Discount of the evidence per observed step."""
    uniform_fraction: Fraction = 0.0
    """Share of uniform draws among all K; above 0 propensities are recorded."""


class ThompsonPolicy(BanditPolicy):
    """Thompson sampling over K."""

    name: ClassVar[str] = "thompson"
    summary: ClassVar[str] = "bandit: the best K under a sample of the hazards' posterior"
    Options: ClassVar[type[msgspec.Struct]] = ThompsonOptions

    def __init__(self, options: ThompsonOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options

    def make_learner(self, capability: Capability, costs: StepCosts) -> Learner:
        """Build a learner on Beta posteriors of the hazards."""
        arms = arms_of(capability)
        discount, even = self._options.discount, self._options.uniform_fraction
        samples = _SAMPLES if even > 0.0 else 1
        return CascadeLearner(
            arms,
            HazardCounts(capability.max_draft_tokens, discount=discount),
            costs,
            partial(_sampled, self._random, samples),  # deepcopy copies it
            self._random,
            uniform_fraction=even,
        )


def _sampled(random: np.random.Generator, samples: int, memory: HazardMemory) -> FloatArray:
    """Draw [samples, Kmax] hazards from their posterior."""
    failed = np.maximum(memory.seen - memory.succeeded, 0.0)
    succeeded = np.maximum(memory.succeeded, 0.0)
    size = (samples, len(failed))
    return random.beta(succeeded + _PRIOR_SUCCESSES, failed + _PRIOR_FAILURES, size)
