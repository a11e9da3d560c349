"""Settings of the simulated engine, and the capability that a policy sees of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.step import Capability, Level

Positive = Annotated[int, msgspec.Meta(ge=1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The simulated engine's settings. Seconds and tokens.

    Attributes:
        max_draft_tokens: Kmax.
        level: granularity of control, as of a real engine.
        ladder: K values that may run at level UNIFORM; empty: all.
        late_confidence: what the drafter showed is known with the step's outcome, not before the
            step; as under asynchronous scheduling.
        delay: steps between a step and the moment its outcome is known to the policy.
        fills_up: where a drafter finds fewer drafts, others take their place, as with n-gram drafts
            of SGLang, TensorRT-LLM and vLLM's model runner V2. They cost as much, are rejected.
        drafts_past_end: verify drafts also beyond a request's last token, as vLLM does where nobody
            trims them; adaptive-spec does.
        max_running: requests admitted at a time.
        max_batch_tokens: token budget of a step; what decoding leaves goes to prompts, in chunks.
        block_tokens: tokens of a KV block.
        kv_tokens: size of the KV pool; None: what the hardware's memory leaves.
        ragged_penalty: relative extra verify time when K differs within a batch.
        reentry_seconds: added to the first step that speculates after an OFF mode.
        memory_guard: shrink K before the pool runs out.
        timing_noise: standard deviation of the logarithm of measured step times; the policy sees
            the noise, the clock does not.
    """

    max_draft_tokens: Positive = 6
    level: Level = Level.FULL
    ladder: tuple[int, ...] = ()
    late_confidence: bool = False
    delay: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    fills_up: bool = False
    drafts_past_end: bool = False
    max_running: Positive = 256
    max_batch_tokens: Positive = 8192
    block_tokens: Positive = 16
    kv_tokens: Positive | None = None
    ragged_penalty: NonNegative = 0.0
    reentry_seconds: NonNegative = 0.0
    memory_guard: bool = True
    timing_noise: NonNegative = 0.0


def capability_of(options: EngineOptions, drafter: Drafter, hardware: Hardware) -> Capability:
    """The capability of this engine. Raises ConfigError if its settings contradict each other."""
    ks = options.ladder or tuple(range(options.max_draft_tokens + 1))
    try:
        return Capability(
            level=options.level,
            max_draft_tokens=options.max_draft_tokens,
            ladder=options.ladder,
            tree_nodes=drafter.tree_nodes(ks),
            token_buckets=hardware.token_buckets,
            depth_follows=drafter.depth_follows,
            off_pass=drafter.off_pass,
            # With a fixed draft depth the drafter's passes run whatever is decided.
            cold_off=options.level is not Level.VERIFY or not drafter.off_pass,
            ragged_penalty=options.ragged_penalty,
        )
    except ValueError as error:
        raise ConfigError(f"engine settings: {error}") from error
