"""Capability of the simulated engine, as a real adapter would report it."""

from __future__ import annotations

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.step import Capability, Level


def capability_of(options: EngineOptions, drafter: Drafter, hardware: Hardware) -> Capability:
    """The capability of this engine. Raises ConfigError if its settings contradict each other."""
    try:
        return Capability(
            level=options.level,
            max_draft_tokens=options.max_draft_tokens,
            ladder=options.ladder,
            token_buckets=hardware.token_buckets,
            depth_follows=drafter.depth_follows,
            off_pass=drafter.off_pass,
            # With a fixed draft depth the drafter's passes run whatever is decided.
            cold_off=options.level is not Level.VERIFY or not drafter.off_pass,
            ragged_penalty=options.ragged_penalty,
        )
    except ValueError as error:
        raise ConfigError(f"engine settings: {error}") from error
