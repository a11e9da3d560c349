"""Requests that follow the records of acceptance data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.load.request import Request

UNKNOWN_PROMPT_TOKENS = 128
"""Prompt length of a record that has none."""


def requests_of(
    data: AcceptanceData,
    *,
    seed: int | np.random.SeedSequence,
    endless: bool = True,
    task: str = "",
) -> Iterator[Request]:
    """One request per record, in a new order on each pass; all arrive at 0.

    Args:
        data: the records; a request takes its length, prompt length, label and temperature.
        seed: of the order.
        endless: begin another pass when one is done; otherwise stop.
        task: only records with this label, if there are any; otherwise all of them.
    """
    random = np.random.default_rng(seed)
    chosen = np.flatnonzero(np.array(data.labels) == task) if task else np.arange(data.records)
    if not chosen.size:
        chosen = np.arange(data.records)
    lengths = data.lengths.tolist()
    prompts = data.prompt_tokens.tolist()
    temperatures = data.temperatures.tolist()
    number = 0
    while True:
        for record in random.permutation(chosen).tolist():
            yield Request(
                id=str(number),
                arrival=0.0,
                prompt_tokens=prompts[record] or UNKNOWN_PROMPT_TOKENS,
                output_tokens=lengths[record],
                record=record,
                task=data.labels[record],
                temperature=temperatures[record],
            )
            number += 1
        if not endless:
            return
