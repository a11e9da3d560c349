"""`discounted_ucb`: UCB on discounted evidence.

D-UCB (Kocsis, Szepesvári, 2006; Garivier, Moulines, arXiv 0805.3415, section 3): each step
multiplies every count by gamma, so that a position unobserved for long is tried again.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from adaptive_spec.policies.bandits.arms import arms_of
from adaptive_spec.policies.bandits.base import (
    BanditOptions,
    BanditPolicy,
    Discount,
    Learner,
    NonNegative,
)
from adaptive_spec.policies.bandits.cascade_learner import (
    HAZARD_WIDTH,
    CascadeLearner,
    upper_bounds,
)
from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import Capability


class DiscountedUcbOptions(BanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `discounted_ucb`."""

    exploration: NonNegative = HAZARD_WIDTH
    """c, the width of the confidence bounds on hazards."""
    discount: Discount = 0.995
    """gamma, discount of the evidence per observed step."""


class DiscountedUcbPolicy(BanditPolicy):
    """UCB over K with discounted evidence."""

    name: ClassVar[str] = "discounted_ucb"
    summary: ClassVar[str] = "bandit: UCB on discounted evidence"
    Options: ClassVar[type[msgspec.Struct]] = DiscountedUcbOptions

    def __init__(self, options: DiscountedUcbOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options

    def make_learner(self, capability: Capability, costs: StepCosts) -> Learner:
        """Build a learner on discounted counts."""
        arms = arms_of(capability)
        discount = self._options.discount
        memory = HazardCounts(capability.max_draft_tokens, discount=discount)
        return CascadeLearner(
            arms, memory, costs, upper_bounds(self._options.exploration), self._random
        )
