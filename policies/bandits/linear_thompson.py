"""`linear_thompson`: linear predictions from sampled coefficients.

theta ~ N(A^-1 b, v^2 A^-1), kept for a few steps (Agrawal, Goyal, arXiv 1209.3352). The sample
predicts each position's hazard; the planner finds K_i per request. Features as in `linucb`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.policies.bandits.linear_policy import (
    Exploration,
    LinearBanditOptions,
    LinearBanditPolicy,
)


class LinearThompsonOptions(
    LinearBanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Options of `linear_thompson`."""

    width: Annotated[float, msgspec.Meta(gt=0)] = 0.3
    """v, scale of the samples' deviation from the mean."""


class LinearThompsonPolicy(LinearBanditPolicy):
    """Linear Thompson sampling, per request."""

    name: ClassVar[str] = "linear_thompson"
    summary: ClassVar[str] = "bandit: linear Thompson sampling on request features; K per request"
    Options: ClassVar[type[msgspec.Struct]] = LinearThompsonOptions

    def __init__(self, options: LinearThompsonOptions, *, seed: int = 0) -> None:
        exploration = Exploration(0.0, options.width, options.hold_steps)
        super().__init__(options, exploration, seed=seed)
