"""Lengths of prompts and outputs: fixed, or drawn from a law."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.load.text_file import MOST_TOKENS

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
