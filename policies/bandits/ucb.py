"""`ucb`: upper confidence bounds on hazards.

Bound of position j: mean_j + c sqrt(ln t / n_j); the plan is the best under these bounds
(CombCascade; Kveton, Wen, Ashkan, Szepesvári, arXiv 1507.04208, algorithm 1, with c^2 = 1.5 there).
Each observed step multiplies every count by gamma, so that a position unobserved for long is tried
again (D-UCB; Kocsis, Szepesvári, 2006; Garivier, Moulines, arXiv 0805.3415, section 3).
"""

from __future__ import annotations

import math
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.bandits.acceptance import Discount, NonNegative, PositionAcceptance
from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.planned import PlannedPolicy
from adaptive_spec.step import FloatArray


class UcbOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `ucb`."""

    profile: str | None = None
    """File with an initial cost profile."""
    exploration: NonNegative = 0.2
    """c, the width of the bounds. Small, because survival is a product of bounds, so that optimism
    multiplies.
    """
    discount: Discount = 0.995
    """gamma, discount of the evidence per observed step; 1 keeps it, for stationary traffic."""


class UcbAcceptance(PositionAcceptance):
    """Upper bounds on hazards by position.

    Args:
        options: of the policy.
    """

    def __init__(self, options: UcbOptions) -> None:
        super().__init__(options.discount)
        self._width = options.exploration

    def hazards(self, evidence: HazardCounts) -> FloatArray:
        """Return [Kmax] bounds; 1 for an unobserved position."""
        seen = np.maximum(evidence.seen, 1e-9)
        logarithm = math.log(max(evidence.steps, 1.0) + 1.0)
        mean = np.where(evidence.seen > 0.0, evidence.succeeded / seen, 1.0)
        bound: FloatArray = np.minimum(mean + self._width * np.sqrt(logarithm / seen), 1.0)
        return bound


class UcbPolicy(PlannedPolicy):
    """UCB over plans."""

    name: ClassVar[str] = "ucb"
    summary: ClassVar[str] = "bandit: upper confidence bounds on the hazards"
    Options: ClassVar[type[msgspec.Struct]] = UcbOptions

    def __init__(self, options: UcbOptions, *, seed: int = 0) -> None:
        super().__init__(UcbAcceptance(options), options.profile, tpot_allowance=0.0, seed=seed)
