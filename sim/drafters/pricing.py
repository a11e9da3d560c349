"""Prices a drafter that nobody has measured on the hardware, from the shape of its network.

Shapes are expressed as shares of the target, so that one drafter can be priced on any target.
For a dense bf16 Llama-like target, a layer has 13 h^2 parameters (Llama-3: 218 M at h = 4096 and
856 M at h = 8192, that is 13.0 and 12.8 h^2) and embedding and LM head V h each, V = 128,256. Its
width h follows from its weights and its number of layers. For quantised or mixture-of-experts
targets the width, and with it the share of the head, is only a rough estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from adaptive_spec.sim.drafters.base import DraftCost
from adaptive_spec.sim.hardware.base import Hardware

LAYER_PARAMETERS = 13.0
"""Parameters of a layer over h^2."""
VOCABULARY = 128_256
BYTES_PER_PARAMETER = 2

# Between these two points costs are taken as linear: one request, and a batch as large as
# servers typically decode, with 1,024 tokens of context each.
FEW_REQUESTS = 1
MANY_REQUESTS = 64
CONTEXT_TOKENS = 1024 * MANY_REQUESTS
LARGE_PASS = 512
"""Tokens of a pass that computing bounds, for the price of a token there."""


@dataclass(frozen=True)
class TargetShape:
    """The target, as far as drafters share its dimensions. Shares are of all its parameters.

    Attributes:
        width: hidden size h.
        layer: share of one layer.
        head: share of the LM head.
    """

    width: float
    layer: float
    head: float

    @classmethod
    def of(cls, hardware: Hardware) -> TargetShape:
        """Hidden size from L layers and P parameters: h solves L 13 h^2 + 2 V h = P."""
        parameters = hardware.weight_bytes / BYTES_PER_PARAMETER
        a, b = LAYER_PARAMETERS * hardware.layers, 2.0 * VOCABULARY
        width = (math.sqrt(b * b + 4.0 * a * parameters) - b) / (2.0 * a)
        return cls(
            width=width,
            layer=LAYER_PARAMETERS * width * width / parameters,
            head=VOCABULARY * width / parameters,
        )


def network_share(hardware: Hardware, layers: float, heads: float = 1.0) -> float:
    """Share of the target's weights that a pass of so many of its layers and heads reads."""
    shape = TargetShape.of(hardware)
    return layers * shape.layer + heads * shape.head


def measured_cost(
    name: str, hardware: Hardware, *, fixed_passes: int | None = None
) -> DraftCost | None:
    """The measured cost of drafter `name`, if the hardware profile holds one."""
    measured = hardware.measured_draft(name)
    if measured is None:
        return None
    return DraftCost(**msgspec.structs.asdict(measured), fixed_passes=fixed_passes)


def draft_cost(
    name: str,
    hardware: Hardware,
    share: float,
    *,
    tokens_per_request: float = 1.0,
    fixed_passes: int | None = None,
) -> DraftCost:
    """The measured cost of drafter `name` on this hardware, else a price from its share.

    Args:
        name: under which the hardware profile would hold a measurement.
        hardware: the target's.
        share: of the target's weights, read by one pass of the drafter.
        tokens_per_request: tokens that a pass computes for each request.
        fixed_passes: see `DraftCost`.
    """
    measured = measured_cost(name, hardware, fixed_passes=fixed_passes)
    if measured is not None:
        return measured
    few = round(FEW_REQUESTS * tokens_per_request)
    many = round(MANY_REQUESTS * tokens_per_request)
    at_few = hardware.pass_seconds(share, few, 0)
    at_many = hardware.pass_seconds(share, many, 0)
    # Before its first draft the drafter runs over the tokens verified last: one more per request
    # for each draft.
    verified = 0.0 if fixed_passes else share * _token_seconds(hardware)
    in_context = hardware.pass_seconds(share, many, CONTEXT_TOKENS)
    per_request = max(0.0, at_many - at_few) / (MANY_REQUESTS - FEW_REQUESTS)
    return DraftCost(
        pass_=max(0.0, at_few - per_request * FEW_REQUESTS),
        pass_per_request=per_request + verified,
        pass_per_context_token=max(0.0, in_context - at_many) / CONTEXT_TOKENS,
        fixed_passes=fixed_passes,
    )


def _token_seconds(hardware: Hardware) -> float:
    """One more token in a pass of the target that computing bounds."""
    few, many = (
        hardware.pass_with_overhead(MANY_REQUESTS, tokens, 0, 0, 0)
        for tokens in (MANY_REQUESTS, LARGE_PASS)
    )
    return (many - few) / (LARGE_PASS - MANY_REQUESTS)
