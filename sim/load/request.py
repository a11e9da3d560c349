"""Requests as the simulator sees them: when they come, how long they are, what they ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData

ANY_RECORD = -1
MOST_TOKENS = 10**8
"""A length above this is taken for a damaged file."""


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
        temperature: sampling temperature; None: that of the target its record was made with.
        tpot_target: seconds per output token asked for; inf if none.
    """

    id: str
    arrival: float
    prompt_tokens: int
    output_tokens: int
    record: int = ANY_RECORD
    task: str = ""
    temperature: float | None = None
    tpot_target: float = math.inf


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


Tokens = Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]

_BLOCK = 1024


class LogNormalTokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens with a log-normal law, which lengths of real requests resemble.

    Attributes:
        mean: of the law, before rounding and `most`.
        cv: standard deviation over mean.
        most: longer ones become this.
    """

    mean: Annotated[float, msgspec.Meta(ge=1, le=MOST_TOKENS)]
    cv: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0
    most: Tokens = MOST_TOKENS


TokenLaw: TypeAlias = Tokens | LogNormalTokens


def drawn(law: TokenLaw, random: np.random.Generator) -> Iterator[int]:
    """Endless lengths, each >= 1."""
    if isinstance(law, int):
        while True:
            yield law
    # Variance of the logarithm, and its mean, so that mean and CV come out as stated.
    variance = math.log1p(law.cv**2)
    centre = math.log(law.mean) - variance / 2
    while True:
        block = np.exp(random.normal(centre, math.sqrt(variance), size=_BLOCK))
        yield from np.rint(block).clip(1, law.most).astype(np.int64).tolist()


def with_lengths(
    requests: Iterator[Request],
    prompt: TokenLaw | None,
    output: TokenLaw | None,
    random: np.random.Generator,
) -> Iterator[Request]:
    """The requests with other lengths; None leaves that length as it is."""
    prompt_random, output_random = random.spawn(2)
    prompts = None if prompt is None else drawn(prompt, prompt_random)
    outputs = None if output is None else drawn(output, output_random)
    for request in requests:
        yield msgspec.structs.replace(
            request,
            prompt_tokens=request.prompt_tokens if prompts is None else next(prompts),
            output_tokens=request.output_tokens if outputs is None else next(outputs),
        )
