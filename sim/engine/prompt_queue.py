"""Requests that wait and requests whose prompts run, in chunks."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from adaptive_spec.sim.load.request import Request


@dataclass(slots=True)
class Running:
    """A request that has arrived and not ended.

    Attributes:
        request: what was asked for.
        start: first position of its acceptance record.
        length: positions of that record; a longer output starts over in it.
        temperature: of sampling: the request's own, else that of its record's target.
        slot: its row in the policy's arrays, -1 before it first decodes.
        emitted: tokens emitted; stands still while the request is in the decode batch, which
            keeps its own count.
        prefilled: prompt tokens in the KV cache, those to be recomputed included.
        blocks: KV blocks held while its prompt runs.
        first_token: when the first token was emitted; nan before.
        stale: the drafter's state has holes; no draft to its end.
    """

    request: Request
    start: int
    length: int
    temperature: float
    slot: int = -1
    emitted: int = 0
    prefilled: int = 0
    blocks: int = 0
    first_token: float = math.nan
    stale: bool = False

    @property
    def to_prefill(self) -> int:
        """Prompt tokens to run before it can decode; after a preemption, its output as well."""
        return self.request.prompt_tokens + self.emitted


class PromptStep(NamedTuple):
    """Prompt tokens of a step."""

    tokens: int
    """Prompt tokens that run."""
    context_tokens: int
    """Tokens that attention reads: those before each prompt token, summed."""
    ended: list[Running]
    """Requests whose prompt is complete; they emit a token in this step."""


class PromptQueue:
    """First come, first served; a request is admitted when the KV pool has room for its prompt.

    Real engines take a prompt's blocks chunk by chunk; taking them at once is simpler, and
    differs only while the pool is nearly full.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block = block_tokens
        self.waiting: deque[Running] = deque()
        self.running: list[Running] = []
        self.blocks = 0
        """KV blocks held by the running prompts."""

    def expected_tokens(self, room: int) -> int:
        """Prompt tokens the next step is likely to run: of admitted prompts, and the next one."""
        if not self.running and not self.waiting:
            return 0
        pending = sum(each.to_prefill - each.prefilled for each in self.running)
        if self.waiting:
            pending += self.waiting[0].to_prefill
        return max(min(pending, room), 0)

    def arrive(self, request: Running) -> None:
        """A new request joins the end of the queue."""
        self.waiting.append(request)

    def preempted(self, request: Running) -> None:
        """A request lost its KV blocks: it is the next to be admitted, and runs again."""
        request.prefilled = 0
        request.stale = False  # its KV is computed anew, and the drafter's state with it
        self.waiting.appendleft(request)

    def evict_latest(self) -> Running | None:
        """Preempt the prompt that was admitted last, if any runs."""
        if not self.running:
            return None
        evicted = self.running.pop()
        self.blocks -= evicted.blocks
        evicted.blocks = 0
        self.preempted(evicted)
        return evicted

    def run_prompts(self, budget: int, free_blocks: int, free_places: int) -> PromptStep:
        """Run as many prompt tokens as the step has left.

        Args:
            budget: tokens left in the step.
            free_blocks: KV blocks left, those of the running prompts not counted.
            free_places: requests that may still be admitted.
        """
        tokens = context = 0
        ended: list[Running] = []
        for prompt in self.running:
            if budget - tokens <= 0:
                break
            chunk = min(prompt.to_prefill - prompt.prefilled, budget - tokens)
            context += chunk * prompt.prefilled + chunk * (chunk - 1) // 2
            prompt.prefilled += chunk
            tokens += chunk
        while self.waiting and free_places > 0 and tokens < budget:
            prompt = self.waiting[0]
            # One token more: the first it emits.
            blocks = (prompt.to_prefill + self._block) // self._block
            if blocks > free_blocks:
                break
            self.waiting.popleft()
            free_blocks -= blocks
            free_places -= 1
            prompt.blocks = blocks
            self.blocks += blocks
            self.running.append(prompt)
            chunk = min(prompt.to_prefill, budget - tokens)
            context += chunk * (chunk - 1) // 2
            prompt.prefilled = chunk
            tokens += chunk
        if self.running:
            ended = [each for each in self.running if each.prefilled >= each.to_prefill]
            if ended:
                self.running = [each for each in self.running if each.prefilled < each.to_prefill]
                self.blocks -= sum(each.blocks for each in ended)
        return PromptStep(tokens, context, ended)
