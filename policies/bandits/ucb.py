"""`ucb`: upper confidence bounds on undiscounted evidence.

UCB1 (Auer, Cesa-Bianchi, Fischer, Machine Learning 47, 2002, figure 1) on the hazards of each
position, mean_j + c sqrt(ln t / n_j), and the best K under these bounds (CombCascade; Kveton, Wen,
Ashkan, Szepesvári, arXiv 1507.04208, algorithm 1, with c^2 = 1.5 there). For stationary traffic:
the evidence never fades.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from adaptive_spec.policies.bandits.arms import arms_of
from adaptive_spec.policies.bandits.base import BanditOptions, BanditPolicy, Learner, NonNegative
from adaptive_spec.policies.bandits.cascade_learner import (
    HAZARD_WIDTH,
    CascadeLearner,
    upper_bounds,
)
from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import Capability


class UcbOptions(BanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `ucb`."""

    exploration: NonNegative = HAZARD_WIDTH
    """c, the width of the confidence bounds on hazards."""


class UcbPolicy(BanditPolicy):
    """UCB over K."""

    name: ClassVar[str] = "ucb"
    summary: ClassVar[str] = "bandit: upper confidence bounds on the hazards"
    Options: ClassVar[type[msgspec.Struct]] = UcbOptions

    def __init__(self, options: UcbOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options

    def make_learner(self, capability: Capability, costs: StepCosts) -> Learner:
        """Build a learner on undiscounted counts."""
        arms = arms_of(capability)
        memory = HazardCounts(capability.max_draft_tokens, discount=1.0, evidence_limit=1e12)
        return CascadeLearner(
            arms, memory, costs, upper_bounds(self._options.exploration), self._random
        )
