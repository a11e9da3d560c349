"""Advice on Kmax: what a larger number of draft tokens would let a policy use.

Engines without this package run one K at all loads, so operators configure a small one. With it,
the configured number is only the bound, Kmax.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

_ENOUGH = 200
"""Observations of the last position below which its acceptance counts as not measured."""
_WORTHWHILE = 0.3
"""Survival from which one more draft pays at a light load, where a draft pass takes about a tenth
of a step that emits two to three tokens."""
_FARTHEST = 8
"""Positions past Kmax up to which survival is extrapolated."""
_SMALL = 4
"""Kmax below which a larger one is worth trying without a measurement."""


class _Learned(msgspec.Struct):
    """The part of a `HazardModel`'s state that the advice reads."""

    position_effect: list[float]
    observations: list[int]


def kmax_advice(
    kmax: int, requests: int, state: Mapping[str, Any] | None = None, *, recurrent: bool = False
) -> str:
    """Return one sentence for operators; empty if there is nothing to say.

    Only for drafters that run once for each draft, and so can run more often.

    Args:
        kmax: draft tokens that the engine is configured for.
        requests: largest number of requests in a batch.
        state: a policy's learned state; its survival is used if it has one.
        recurrent: the model keeps a recurrent state, of which each draft token needs a copy.
    """
    hazards = _measured_hazards(state or {}, kmax)
    if not hazards:
        if kmax >= _SMALL:
            return ""
        return f"Kmax {kmax} can be raised: {_cost(kmax, _SMALL, requests, recurrent)}"
    survival = math.prod(hazards)
    deepest = kmax
    while deepest < kmax + _FARTHEST and survival * hazards[-1] >= _WORTHWHILE:
        survival *= hazards[-1]
        deepest += 1
    measured = f"measured survival of draft {kmax} is {math.prod(hazards):.2f}"
    if deepest == kmax:
        return f"{measured}: a larger Kmax would gain little"
    cost = _cost(kmax, deepest, requests, recurrent)
    return f"{measured}, of draft {deepest} about {survival:.2f}: {cost}"


def _cost(kmax: int, advised: int, requests: int, recurrent: bool) -> str:
    more = advised - kmax
    reserved = "KV tokens and copies of the recurrent state" if recurrent else "KV tokens"
    return (
        f"num_speculative_tokens {advised} drafts deeper where it pays, with the same weights; it "
        f"reserves {more} more {reserved} per running request (at most {more * requests}) and, "
        "with captured graphs, captures more of them at start"
    )


def _measured_hazards(state: Mapping[str, Any], kmax: int) -> list[float]:
    """Return the acceptance of positions 1 to Kmax in a saved state; empty if it has none."""
    for learned in state.values():
        try:
            found = msgspec.convert(learned, _Learned)
        except msgspec.ValidationError:
            continue
        logits, seen = found.position_effect, found.observations
        if len(logits) == len(seen) == kmax and seen[-1] >= _ENOUGH:
            return [1.0 / (1.0 + math.exp(-max(logit, -50.0))) for logit in logits]
    return []
