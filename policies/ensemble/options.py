"""Options of `ensemble`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec


class MemberChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member with options."""

    name: str
    """An installed policy, or ``module:Class``."""
    options: dict[str, Any] = {}


class EnsembleOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `ensemble`."""

    members: Annotated[
        tuple[str | MemberChoice, ...], msgspec.Meta(min_length=1, max_length=16)
    ] = ("goodput", "regression", "static", "off")
    """Names, or objects with `name` and `options`. The first leads until another does better."""
    profile: str | None = None
    """File with a cost profile to start from, for the ensemble and for members that take one."""
    choice: Literal["best", "sampled"] = "best"
    """Follow the member with the largest weight, or draw one in proportion to the weights."""
    discount: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.995
    """How fast losses are forgotten, per step."""
    fixed_share: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 1e-4
    """Weight that is shared out anew in each step."""
