"""A request as the simulator sees it: when it comes, how long it is, what it asks for."""

from __future__ import annotations

import math

import msgspec

ANY_RECORD = -1


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a load.

    Attributes:
        id: its name, unique within a run.
        arrival: seconds from the start of the run.
        prompt_tokens: length of its prompt, >= 1.
        output_tokens: tokens it will emit, >= 1.
        record: which record of the acceptance data it follows; `ANY_RECORD` lets the seed
            choose one, among those with its task label if there are any.
        task: label of requests that are alike, or "".
        tenant: who sent it, or "".
        temperature: sampling temperature; None: that of the target its record was made with.
        tpot_target: seconds per output token asked for; inf if none.
    """

    id: str
    arrival: float
    prompt_tokens: int
    output_tokens: int
    record: int = ANY_RECORD
    task: str = ""
    tenant: str = ""
    temperature: float | None = None
    tpot_target: float = math.inf
