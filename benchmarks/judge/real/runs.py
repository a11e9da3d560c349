"""One run of an engine."""

from __future__ import annotations

import msgspec

from ..device import Work


class RunKey(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinates of a run.

    Attributes:
        engine: ``vllm-v1``, ``vllm-v1-async``, ``sglang``.
        method: of drafting, ``none`` without a drafter.
        arm: its name.
        device: on whose clock; empty where the steps do not depend on the clock.
        load: name of the load.
    """

    engine: str = "vllm-v1"
    method: str
    arm: str
    device: str = ""
    load: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One load, answered.

    Attributes:
        key: of what.
        steps: what each step ran, in order.
        sums: checksum of each request's tokens, in the order of requests.
        texts: tokens of each request's prompt and answer, of the arm without speculation.
        modes: steps by mode of speculation, for arms with our plugin.
        faults: failures of our plugin; must be 0.
    """

    key: RunKey
    steps: list[Work]
    sums: list[int]
    texts: list[tuple[list[int], list[int]]] = []
    modes: dict[str, int] = {}
    faults: int = 0
