"""`thompson`: the best K under a sample of the posterior.

Thompson sampling (Thompson, 1933; Agrawal, Goyal, arXiv 1209.3353) on discounted evidence (Raj,
Kalyani, arXiv 1707.09727): hazard j ~ Beta(a + successes, b + failures), one sample for all
positions, and the K with the most expected tokens per second under the sample.

The probability that a K is best in a sample has no closed form. With `uniform_fraction` above 0,
the policy draws from the best K of 64 samples, or uniformly with that probability. Every K then has
a known probability, which is recorded for off-policy evaluation.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.bandits.bandit_policy import (
    BanditOptions,
    BanditPolicy,
    Draw,
    Fraction,
)
from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.step import FloatArray

_SAMPLES = 64
_PRIOR_SUCCESSES, _PRIOR_FAILURES = 2.0, 1.0


class ThompsonOptions(BanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `thompson`."""

    uniform_fraction: Fraction = 0.0
    """Share of uniform draws among all K; above 0 propensities are recorded."""


class ThompsonPolicy(BanditPolicy):
    """Thompson sampling over K."""

    name: ClassVar[str] = "thompson"
    summary: ClassVar[str] = "bandit: the best K under a sample of the hazards' posterior"
    Options: ClassVar[type[msgspec.Struct]] = ThompsonOptions

    def __init__(self, options: ThompsonOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._uniform = options.uniform_fraction

    def hazards(self, evidence: HazardCounts) -> FloatArray:
        """Draw [samples, Kmax] hazards from their posterior."""
        failed = np.maximum(evidence.seen - evidence.succeeded, 0.0)
        succeeded = np.maximum(evidence.succeeded, 0.0)
        size = (_SAMPLES if self._uniform > 0.0 else 1, len(failed))
        return self._random.beta(succeeded + _PRIOR_SUCCESSES, failed + _PRIOR_FAILURES, size)

    def pick(self, goodput: FloatArray) -> Draw:
        """Pick the best K of the sample, or draw among the best K of all samples."""
        best = np.argmax(goodput, axis=1)
        if self._uniform <= 0.0:
            return Draw(int(best[0]), "best in a sample")
        arms = goodput.shape[1]
        share = np.bincount(best, minlength=arms) / len(best)
        probabilities = self._uniform / arms + (1.0 - self._uniform) * share
        probabilities /= probabilities.sum()
        arm = int(self._random.choice(arms, p=probabilities))
        return Draw(arm, "drawn from samples", probabilities)
