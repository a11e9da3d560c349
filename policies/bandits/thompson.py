"""`thompson`: the best plan under a sample of the posterior.

Thompson sampling (Thompson, 1933; Agrawal, Goyal, arXiv 1209.3353) on discounted evidence (Raj,
Kalyani, arXiv 1707.09727): hazard j ~ Beta(a + successes, b + failures), one sample for all
positions, and the plan with the most expected tokens per second under the sample. A sample holds
for some steps, so that drafts made under it are verified under it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.bandits.acceptance import Discount, PositionAcceptance
from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.planned import PlannedPolicy
from adaptive_spec.step import FloatArray

_PRIOR_SUCCESSES, _PRIOR_FAILURES = 2.0, 1.0


class ThompsonOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `thompson`."""

    profile: str | None = None
    """File with an initial cost profile."""
    hold_steps: Annotated[int, msgspec.Meta(ge=1)] = 4
    """Steps that are planned by one sample."""
    discount: Discount = 0.998
    """Discount of the evidence per observed step; 1 keeps it, for stationary traffic."""


class ThompsonAcceptance(PositionAcceptance):
    """Samples of the hazards by position.

    Args:
        options: of the policy.
        seed: of the samples.
    """

    def __init__(self, options: ThompsonOptions, seed: int) -> None:
        super().__init__(options.discount)
        self._random = np.random.default_rng(seed)
        self._hold, self._held = options.hold_steps, 0

    def hazards(self, evidence: HazardCounts) -> FloatArray:
        """Return [Kmax] hazards drawn from their posterior, every few steps anew."""
        if self._held == 0:
            failed = np.maximum(evidence.seen - evidence.succeeded, 0.0)
            succeeded = np.maximum(evidence.succeeded, 0.0)
            self._sample = self._random.beta(succeeded + _PRIOR_SUCCESSES, failed + _PRIOR_FAILURES)
        self._held = (self._held + 1) % self._hold
        return self._sample


class ThompsonPolicy(PlannedPolicy):
    """Thompson sampling over plans."""

    name: ClassVar[str] = "thompson"
    summary: ClassVar[str] = "bandit: the best plan under a sample of the hazards' posterior"
    Options: ClassVar[type[msgspec.Struct]] = ThompsonOptions

    def __init__(self, options: ThompsonOptions, *, seed: int = 0) -> None:
        acceptance = ThompsonAcceptance(options, seed)
        super().__init__(acceptance, options.profile, tpot_allowance=0.0, seed=seed)
