"""A request inside the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from adaptive_spec.sim.load.request import Request


@dataclass(slots=True)
class Running:
    """A request that has arrived and not ended.

    Attributes:
        request: what was asked for.
        start: first position of its acceptance record.
        length: positions of that record; a longer output starts over in it.
        temperature: of sampling: the request's own, else that of its record's target.
        slot: its row in the policy's arrays, -1 before it first decodes.
        emitted: tokens emitted; stands still while the request is in the decode batch, which
            keeps its own count.
        prefilled: prompt tokens in the KV cache, those to be recomputed included.
        blocks: KV blocks held while its prompt runs.
        first_token: when the first token was emitted; nan before.
        stale: the drafter's state has holes; no draft to its end.
    """

    request: Request
    start: int
    length: int
    temperature: float
    slot: int = -1
    emitted: int = 0
    prefilled: int = 0
    blocks: int = 0
    first_token: float = math.nan
    stale: bool = False

    @property
    def to_prefill(self) -> int:
        """Prompt tokens to run before it can decode; after a preemption, its output as well."""
        return self.request.prompt_tokens + self.emitted
