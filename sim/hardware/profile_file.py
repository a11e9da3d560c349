"""A hardware profile: step times of one model on one machine, as a JSON file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.errors import ConfigError

ANY_DRAFTER = "*"
"""Name under which a profile holds the drafter of a recording that did not name it."""
NOMINAL_MODEL = "llama-3.1-8b"
"""Whose size and layers a recording gets that does not say what ran."""

NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Tokens = Annotated[int, msgspec.Meta(ge=1)]


class MeasuredDraft(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Measured cost of one drafter on this hardware, seconds.

    Attributes:
        proposal: once per step that drafts.
        proposal_per_request: the same, per request.
        pass_: each sequential pass.
        pass_per_request: each pass, per request.
        pass_per_context_token: each pass, per token of context.
        source: where the figures come from.
    """

    proposal: float = 0.0
    proposal_per_request: float = 0.0
    pass_: float = msgspec.field(default=0.0, name="pass")
    pass_per_request: float = 0.0
    pass_per_context_token: float = 0.0
    source: str = ""


class HardwareProfile(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Seconds of a step as a sum of parts; bytes and facts of model and machine.

        verify = overhead + fixed + per_token M + curve(M) + per_batch_token N + per_request B
                 + per_context_token C + per_prefill_token P + per_prefill_context_token Q

    or host + host_per_request B, if that is longer.

    B decoding requests with N batch tokens and C tokens of context, P prompt tokens that attend
    to Q tokens before them, M = N + P tokens in all (N alone if not `prefill_in_curve`).

    Attributes:
        schema: version of this format.
        name: as `--hardware` knows it, such as ``h100-llama-8b``.
        source: where the figures come from.
        model: name of the model, for people.
        gpu: name of the GPU, for people.
        tensor_parallel: GPUs that share the model.
        memory_bytes: memory of all those GPUs, without activations and graphs; the engine uses
            a share of it for weights and KV.
        weight_bytes: the model's weights.
        kv_bytes_per_token: over all layers and GPUs.
        layers: of the target.
        token_buckets: captured graph sizes in batch tokens, ascending.
        outside_graph_seconds: added to a step that no captured graph serves.
        overhead: the engine's own time per step.
        fixed: of the target pass, whatever its size.
        per_token: per token of the pass.
        tokens: knots of a piecewise linear curve over the tokens of the pass, ascending;
            constant before the first, linear past the last; or empty.
        seconds: its values there, never falling.
        prefill_in_curve: prompt tokens count as tokens of the pass.
        per_batch_token: per verified token N (vocabulary head, sampling).
        per_request: per decoding request.
        host: work of the engine's host that overlaps with the GPU's.
        host_per_request: the same, per decoding request.
        per_context_token: per token of context of the decoding requests.
        per_prefill_token: per prompt token.
        per_prefill_context_token: per pair of a prompt token and a token before it.
        verify_per_context_token: the same again where any draft is verified, beyond the former.
        any_draft: once if any draft is verified.
        any_draft_per_request: the same, per decoding request.
        draft_pass_overhead: what a pass of any drafter costs besides its share of the target's
            pass: launches, sampling.
        drafts: measured drafters, by name.
    """

    schema: Literal[1]
    name: str
    source: str
    model: str = ""
    gpu: str = ""
    tensor_parallel: Tokens = 1
    memory_bytes: Positive
    weight_bytes: NonNegative
    kv_bytes_per_token: Positive
    layers: Tokens
    token_buckets: list[Tokens] = []
    outside_graph_seconds: NonNegative = 0.0
    overhead: NonNegative = 0.0
    fixed: NonNegative = 0.0
    per_token: NonNegative = 0.0
    tokens: list[Tokens] = []
    seconds: list[NonNegative] = []
    prefill_in_curve: bool = True
    per_batch_token: NonNegative = 0.0
    per_request: NonNegative = 0.0
    host: NonNegative = 0.0
    host_per_request: NonNegative = 0.0
    per_context_token: NonNegative = 0.0
    per_prefill_token: NonNegative = 0.0
    per_prefill_context_token: NonNegative = 0.0
    verify_per_context_token: NonNegative = 0.0
    any_draft: NonNegative = 0.0
    any_draft_per_request: NonNegative = 0.0
    draft_pass_overhead: NonNegative = 0.0
    drafts: dict[str, MeasuredDraft] = {}

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.seconds):
            raise ValueError("`tokens` and `seconds` differ in length")
        if len(self.tokens) == 1:
            raise ValueError("`tokens` needs two knots or none")
        for name in ("tokens", "token_buckets"):
            knots = getattr(self, name)
            if knots != sorted(set(knots)):
                raise ValueError(f"`{name}` must ascend without repeats")
        if self.seconds != sorted(self.seconds):
            raise ValueError("`seconds` must not fall")
        if self.overhead + self.fixed + (self.seconds[0] if self.seconds else 0.0) <= 0:
            raise ValueError("a step takes no time: give `fixed`, `overhead` or `seconds`")
        if self.weight_bytes >= self.memory_bytes:
            raise ValueError("`weight_bytes` leave nothing of `memory_bytes` for KV")


def read_hardware_profile(path: str | os.PathLike[str]) -> HardwareProfile:
    """Read a profile file. Raises ConfigError naming the file and what is wrong with it."""
    try:
        profile: HardwareProfile = decode_json(read_small_file(path), HardwareProfile)
    except OSError as error:
        raise ConfigError(f"hardware profile {str(path)!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"hardware profile {str(path)!r}: {error}") from error
    return profile


def write_hardware_profile(profile: HardwareProfile, path: str | os.PathLike[str]) -> None:
    """Write a profile file for people and programs. Raises ConfigError if that fails."""
    text = msgspec.json.format(msgspec.json.encode(profile), indent=2)
    try:
        Path(path).write_bytes(text + b"\n")
    except OSError as error:
        raise ConfigError(f"hardware profile {str(path)!r}: {error.strerror or error}") from error
