"""Options of `goodput`."""

from __future__ import annotations

from typing import Annotated

import msgspec


class GoodputOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `goodput`."""

    profile: str | None = None
    """File with a cost profile to start from; without one, costs are learned from scratch."""
    prior_hazard: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.67
    """Acceptance assumed at each position before anything has been seen."""
    tpot_allowance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02
    """Largest relative lengthening of a step for requests behind their TPOT target; 0 ignores
    targets."""
    confidence: bool = True
    """Use the drafter's confidence where the engine reports it."""
