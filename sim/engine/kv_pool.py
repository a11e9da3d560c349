"""The KV pool: how large it is, and which blocks a batch needs."""

from __future__ import annotations

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.step import IntArray

_USABLE = 0.9
"""Share of the memory an engine takes: vLLM's default `gpu_memory_utilization`."""


def pool_tokens(hardware: Hardware, drafter: Drafter) -> int:
    """Tokens of the KV pool; the drafter's weights and its own KV make it smaller.

    Raises ConfigError if the weights alone do not fit.
    """
    weights = hardware.weight_bytes + drafter.weight_bytes(hardware)
    free = _USABLE * hardware.memory_bytes - weights
    per_token = hardware.kv_bytes_per_token * (1.0 + drafter.kv_share(hardware))
    tokens = int(free / per_token) if free > 0 else 0
    if tokens < 1024:
        raise ConfigError(
            f"{hardware.name} with drafter {drafter.name}: {weights / 1e9:.0f} GB of weights leave "
            f"no room for KV in {hardware.memory_bytes / 1e9:.0f} GB"
        )
    return tokens


class KvPool:
    """A pool of KV blocks.

    Args:
        tokens: its size; what does not fill a block is lost.
        block_tokens: tokens of a block.
    """

    def __init__(self, tokens: int, block_tokens: int) -> None:
        self.blocks = tokens // block_tokens
        self.block_tokens = block_tokens
        self.tokens = self.blocks * block_tokens

    def needed(self, context: IntArray, verify: IntArray) -> int:
        """Blocks for a step: ceil((context + K + 1) / block) of each request, [B] both."""
        return int(((context + verify + self.block_tokens) // self.block_tokens).sum())

    def at_most(self, batch_size: int, context_total: int, max_draft_tokens: int) -> int:
        """Tokens that those blocks can't exceed, whatever K and however contexts are spread."""
        return context_total + batch_size * (max_draft_tokens + self.block_tokens)
