"""`linucb`: upper confidence bounds on linear predictions.

The bound on each hazard of each request is theta . x + c sqrt(x' A^-1 x) (Li, Chu, Langford,
Schapire, arXiv 1003.0146); the planner finds K_i per request. Features: load, context length, the
request's acceptance so far, confidence and entropy of its last drafts, temperature, free KV, task.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from adaptive_spec.policies.bandits.base import NonNegative
from adaptive_spec.policies.bandits.linear_policy import (
    Exploration,
    LinearBanditOptions,
    LinearBanditPolicy,
)


class LinUcbOptions(LinearBanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `linucb`."""

    exploration: NonNegative = 0.2
    """c, the width of the confidence bounds."""


class LinUcbPolicy(LinearBanditPolicy):
    """LinUCB, per request."""

    name: ClassVar[str] = "linucb"
    summary: ClassVar[str] = "bandit: LinUCB on request features; K per request"
    Options: ClassVar[type[msgspec.Struct]] = LinUcbOptions

    def __init__(self, options: LinUcbOptions, *, seed: int = 0) -> None:
        exploration = Exploration(options.exploration, 0.0, options.hold_steps)
        super().__init__(options, exploration, seed=seed)
