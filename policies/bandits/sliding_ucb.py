"""`sliding_ucb`: UCB on a sliding window of steps.

SW-UCB (Garivier, Moulines, arXiv 0805.3415, section 4): means and counts over a window of tau
steps.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.policies.bandits.arms import arms_of
from adaptive_spec.policies.bandits.base import BanditOptions, BanditPolicy, Learner, NonNegative
from adaptive_spec.policies.bandits.cascade_learner import (
    HAZARD_WIDTH,
    CascadeLearner,
    upper_bounds,
)
from adaptive_spec.policies.bandits.hazards import HazardWindow
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import Capability


class SlidingUcbOptions(BanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `sliding_ucb`."""

    exploration: NonNegative = HAZARD_WIDTH
    """c, the width of the confidence bounds on hazards."""
    window: Annotated[int, msgspec.Meta(ge=16, le=100_000)] = 400
    """tau, length of the window (observed steps)."""


class SlidingUcbPolicy(BanditPolicy):
    """UCB over K on a sliding window."""

    name: ClassVar[str] = "sliding_ucb"
    summary: ClassVar[str] = "bandit: UCB on a sliding window of steps"
    Options: ClassVar[type[msgspec.Struct]] = SlidingUcbOptions

    def __init__(self, options: SlidingUcbOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options

    def make_learner(self, capability: Capability, costs: StepCosts) -> Learner:
        """Build a learner on a window."""
        arms = arms_of(capability)
        window = self._options.window
        memory = HazardWindow(capability.max_draft_tokens, window)
        return CascadeLearner(
            arms,
            memory,
            costs,
            upper_bounds(self._options.exploration),
            self._random,
            after_restore=memory.remember_restored,
        )
