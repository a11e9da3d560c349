"""For how many drafts of each request there are KV blocks, the way vLLM gives them out.

A step preempts the last request when a request finds no block. vLLM reserves, per request and
step, the tokens to compute and behind them the lookahead that its drafter writes to, which is Kmax
whatever K is (`VllmConfig.num_lookahead_tokens`): only the part that is verified shrinks with K.
Most requests have room for their drafts in the block they have begun; those that would begin a new
one get it in the order in which vLLM serves them, as long as there are free blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adaptive_spec.step import IntArray


class BlockBudget:
    """Reads one scheduler's block pool. Use from its thread."""

    def __init__(self, scheduler: Any, max_draft_tokens: int) -> None:
        self._scheduler = scheduler
        self._kmax = max_draft_tokens
        managers = scheduler.kv_cache_manager.coordinator.single_type_managers
        self._block_sizes = [int(manager.block_size) for manager in managers]
        self._lookahead = int(scheduler.num_lookahead_tokens)
        # Most blocks, over all groups, that the drafts of one request can begin.
        self._most_new = sum(-(-(1 + max_draft_tokens) // size) for size in self._block_sizes)

    def most_wanted(self, requests: int, prompt_tokens: int) -> int:
        """Return the most blocks that a step with Kmax drafts for each request can need.

        Args:
            requests: that may decode in the step.
            prompt_tokens: expected in the step.
        """
        return requests * self._most_new + self._blocks_of(prompt_tokens)

    def draft_limit(
        self, requests: Sequence[Any], drafts: IntArray, prompt_tokens: int
    ) -> IntArray | None:
        """[B] drafts that find blocks; None if memory is no limit, or K can't prevent anything.

        Args:
            requests: [B] the requests that decode in the coming step, in vLLM's order.
            drafts: [B] drafts at hand.
            prompt_tokens: of requests under way, that will run in the same step.
        """
        scheduler = self._scheduler
        free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        if prompt_tokens:
            prompt_tokens = min(prompt_tokens, scheduler.max_num_scheduled_tokens)
            free -= self._blocks_of(prompt_tokens)
        if free >= len(requests) * self._most_new:
            return None
        bare = [self._new_blocks(request, 0) for request in requests]
        free -= sum(bare)
        if free < 0:
            return None  # a request is preempted whatever K is
        limit = np.full(len(requests), self._kmax, dtype=np.int64)
        for place, (request, wanted) in enumerate(zip(requests, drafts.tolist(), strict=True)):
            if not wanted:
                continue
            more = self._new_blocks(request, wanted) - bare[place]
            while more > free:
                wanted -= 1
                more = self._new_blocks(request, wanted) - bare[place]
            free -= more
            limit[place] = wanted
        return limit

    def _blocks_of(self, prompt_tokens: int) -> int:
        if not prompt_tokens:
            return 0
        return sum(-(-prompt_tokens // size) + 1 for size in self._block_sizes)

    def _new_blocks(self, request: Any, drafts: int) -> int:
        """Blocks that a request needs besides those it has, as `allocate_slots` counts them."""
        scheduler = self._scheduler
        # What is to compute without drafts: one token, unless vLLM schedules ahead.
        end = request.num_tokens + request.num_output_placeholders + drafts + self._lookahead
        end = min(end, scheduler.max_model_len)
        held = scheduler.kv_cache_manager.get_blocks(request.request_id).blocks
        return sum(
            max(-(-end // size) - len(blocks), 0)
            for size, blocks in zip(self._block_sizes, held, strict=True)
        )
