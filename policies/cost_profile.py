"""A cost profile: what a step costs on one model and one machine, as a JSON file.

It is a prior of the belief about step times, and what the simulator runs on.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

import msgspec
import numpy as np

from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.errors import ConfigError
from adaptive_spec.step import FloatArray

LARGEST_PART = 3600.0
"""Seconds that no part of a step takes, at any number of tokens."""
NonNegative = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_PART)]


class CostProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds of a step, as a sum of parts.

    Attributes:
        schema: version of this format.
        name: for people, such as ``h100-llama-8b``.
        source: where the figures come from.
        tokens: batch tokens N at which `seconds` were measured, ascending.
        seconds: verify time at those N, without context and drafting; linear in between and
            past the end.
        per_request: added for each decoding request.
        per_context_token: added for each token of context of the decoding requests.
        per_prefill_token: added for each prompt token in the step.
        draft_pass: one drafter pass.
        draft_pass_per_request: added per pass and decoding request.
        any_draft: added once if any draft is verified (rejection sampling, a slower path).
        any_draft_per_request: the same, per decoding request.
        any_draft_per_context_token: the same, per token of context: some attention kernels read
            it more than once where a request has several query tokens.
    """

    schema: Literal[1] = 1
    name: str = ""
    source: str = ""
    tokens: Annotated[list[Annotated[int, msgspec.Meta(ge=1)]], msgspec.Meta(min_length=2)]
    seconds: Annotated[list[NonNegative], msgspec.Meta(min_length=2)]
    per_request: NonNegative = 0.0
    per_context_token: NonNegative = 0.0
    per_prefill_token: NonNegative = 0.0
    draft_pass: NonNegative = 0.0
    draft_pass_per_request: NonNegative = 0.0
    any_draft: NonNegative = 0.0
    any_draft_per_request: NonNegative = 0.0
    any_draft_per_context_token: NonNegative = 0.0

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.seconds):
            raise ValueError("`tokens` and `seconds` differ in length")
        if self.tokens != sorted(set(self.tokens)):
            raise ValueError("`tokens` must ascend without repeats")
        if self.seconds[0] <= 0:
            raise ValueError("`seconds` must be positive")


def load_profile(path: str | os.PathLike[str]) -> CostProfile:
    """Read a profile file. Raises ConfigError naming the file and what is wrong with it."""
    try:
        profile: CostProfile = decode_json(read_small_file(path), CostProfile)
    except OSError as error:
        raise ConfigError(f"cost profile {str(path)!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"cost profile {str(path)!r}: {error}") from error
    return profile


def extended(profile: CostProfile, tokens: FloatArray) -> FloatArray:
    """Return the profile's verify time at these tokens (seconds), linear past its ends."""
    x = np.array(profile.tokens, dtype=np.float64)
    y = np.array(profile.seconds, dtype=np.float64)
    result: FloatArray = np.interp(tokens, x, y)
    slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
    result += slope * np.maximum(tokens - x[-1], 0.0)
    return result
