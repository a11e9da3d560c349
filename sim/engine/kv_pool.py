"""The KV pool: how large it is, which blocks a batch needs, and who is preempted for them."""

from __future__ import annotations

import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.engine.decode_batch import DecodeBatch
from adaptive_spec.sim.engine.measurements import Measurements
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.engine.prompt_queue import PromptQueue, PromptStep
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


_NO_PROMPTS = PromptStep(0, 0, [])


class KvAllocator:
    """Allocator of KV blocks: the decoding batch goes first, then prompts.

    Attributes:
        preempted: somebody had to leave in this step.
    """

    def __init__(
        self,
        options: EngineOptions,
        pool: KvPool,
        batch: DecodeBatch,
        prompts: PromptQueue,
        measurements: Measurements,
    ) -> None:
        self._options = options
        self._pool = pool
        self._batch = batch
        self._prompts = prompts
        self._measurements = measurements
        self._most = 0
        self.preempted = False

    def reserve(self, verify: IntArray) -> IntArray:
        """Preempt the latest admitted until every request of the batch has its KV blocks.

        Args:
            verify: [B] K_i of the batch.

        Returns the K_i of those that stay.
        """
        batch, pool, prompts = self._batch, self._pool, self._prompts
        self.preempted = False
        self._most = self._most_tokens()
        if self._most <= (pool.blocks - prompts.blocks) * pool.block_tokens:
            return verify
        while pool.needed(batch.context, verify) > pool.blocks - prompts.blocks:
            self._measurements.preemptions += 1
            self.preempted = True
            if prompts.evict_latest() is not None:
                continue
            last = np.zeros(batch.size, dtype=np.bool_)
            last[-1] = True
            (evicted,) = batch.leave(last)
            prompts.preempted(evicted)
            verify = verify[:-1]
        self._most = self._most_tokens()
        return verify

    def run_prompts(self, batch_tokens: int, verify: IntArray) -> PromptStep:
        """Give prompts what decoding leaves of the step's tokens, KV blocks and places."""
        batch, pool, prompts = self._batch, self._pool, self._prompts
        if not prompts.running and not prompts.waiting:
            # The exact number is only needed when it could be a new peak.
            if self._most > self._measurements.kv_peak * pool.tokens:
                self._measurements.kv_in_use(pool.needed(batch.context, verify) / pool.blocks)
            return _NO_PROMPTS
        decoding = pool.needed(batch.context, verify)
        free = pool.blocks - decoding - prompts.blocks
        places = self._options.max_running - batch.size - len(prompts.running)
        if self.preempted:  # the freed blocks are not for other prompts
            places = 0
        step = prompts.run_prompts(self._options.max_batch_tokens - batch_tokens, free, places)
        held = decoding + prompts.blocks + sum(each.blocks for each in step.ended)
        self._measurements.kv_in_use(held / pool.blocks)
        return step

    def _most_tokens(self) -> int:
        kmax = self._options.max_draft_tokens
        return self._pool.at_most(self._batch.size, self._batch.context_total, kmax)
