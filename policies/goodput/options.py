"""Options of `goodput`. Those that switch a part off are for measuring what the part is worth."""

from __future__ import annotations

from typing import Annotated

import msgspec


class GoodputOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `goodput`."""

    profile: str | None = None
    """File with a cost profile to start from; without one, costs are learned from scratch."""
    prior_hazard: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.67
    """Acceptance assumed at each position before anything has been seen."""
    discount: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.98
    """How fast a request's own acceptance is forgotten, per step."""
    latency_strength: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Weight of requests that are behind their TPOT target; 0 ignores targets."""
    explore: bool = True
    """Explore deeper drafts and unmeasured K. Without it K can lock in at a bad value."""
    confidence: bool = True
    """Use the drafter's confidence where the engine tells it."""
    request_effects: bool = True
    """Tell requests apart by their own acceptance."""
    graph_choice: bool = True
    """Weigh the slower graph of a ragged batch, and the padding of captured sizes."""
    change_detection: bool = True
    """Notice when acceptance has changed, and trust the past less."""
    token_worth: bool = True
    """Tokens of requests that accept much count for less: they would soon be done anyway."""
