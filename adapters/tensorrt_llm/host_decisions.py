"""Decisions of the host drafter: draft in the coming iteration or not; one controller a process."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from adaptive_spec.adapters.tensorrt_llm.context import is_real, name_of, temperature_of
from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines.driver import StepClock
from adaptive_spec.step import (
    Capability,
    IntArray,
    Level,
    SpecPlan,
    StepContext,
    StepOutcome,
)

LOG = logging.getLogger("adaptive_spec.tensorrt_llm")


class SuffixIndex:
    """Index of the last occurrence of each short token run of one request."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Add the tokens since the last call.

        Args:
            tokens: the whole sequence so far.
        """
        known = len(self._tokens)
        self._tokens.extend(tokens[known:])
        # A run that ends at the last token has no continuation yet: it is entered next time.
        for end in range(max(known, 1), len(self._tokens)):
            for length in range(1, min(self._longest, end) + 1):
                self._after[tuple(self._tokens[end - length : end])] = end

    def propose(self, count: int) -> list[int]:
        """Return up to `count` tokens that followed the longest known run at the end."""
        size = len(self._tokens)
        for length in range(min(self._longest, size), 0, -1):
            start = self._after.get(tuple(self._tokens[size - length :]))
            if start is not None:
                return self._tokens[start : start + max(count, 0)]
        return []


class LiveRequest:
    """Decoding request.

    Attributes:
        request: upstream's object.
        index: continuations of the request's earlier tokens.
        drafts: drafts for the coming iteration.
        tokens: length so far (tokens).
    """

    __slots__ = ("drafts", "index", "request", "tokens")

    def __init__(self, request: Any, longest: int) -> None:
        self.request = request
        self.index = SuffixIndex(longest)
        self.drafts: list[int] = []
        self.tokens = 0

    def look_up(self, kmax: int) -> None:
        """Find drafts for the coming iteration, at most one fewer than the tokens to go."""
        request = self.request
        self.tokens = request.get_num_tokens(0)
        self.index.extend(request.get_tokens(0))
        self.drafts = self.index.propose(min(kmax, self.left - 1))

    @property
    def left(self) -> int:
        """Tokens that the request may still emit."""
        request = self.request
        return int(request.py_orig_prompt_len + request.py_max_new_tokens - self.tokens)


class Decisions:
    """Plan before an iteration and learn after it, on rank 0; other ranks do nothing."""

    def __init__(self, config: Config, kmax: int, *, acts: bool) -> None:
        capability = Capability(
            level=Level.UNIFORM,
            max_draft_tokens=kmax,
            ladder=(0, kmax),
            off_pass=False,
        )
        self.controller = Controller.from_config(config, capability, logger=LOG)
        self._capability = capability
        self._kmax = kmax
        self._acts = acts
        self._clock = StepClock()
        self._step = 0
        self._context: StepContext | None = None
        self._found: list[int] = []
        """Drafts that were looked up for each request of the context."""
        self._ran: tuple[StepContext, dict[str, int], int, float] | None = None
        self._k = kmax

    def next_k(self, live: Iterable[LiveRequest], may_stop: bool) -> int:
        """Return Kmax or 0 for the coming iteration."""
        self._context = None
        if not self._acts:
            return self._kmax
        self._step += 1
        self._context = self._build(list(live))
        plan = self.controller.plan(self._context)
        self._k = self._kmax
        if may_stop and plan.acts and not _drafts(plan):
            self._k = 0
        return self._k

    def launched(self, scheduled_batch: Any) -> None:
        """Record the launch of the planned iteration."""
        context, self._context = self._context, None
        if context is None:
            return
        batch = [r for r in scheduled_batch.generation_requests if is_real(r)]
        before = {name_of(request): request.get_num_tokens(0) for request in batch}
        prompt = sum(request.context_chunk_size for request in scheduled_batch.context_requests)
        self._ran = (context, before, prompt, self._clock.launched(time.monotonic(), under_way=0))

    def done(self, live: Mapping[str, LiveRequest]) -> None:
        """Learn from the applied results."""
        ran, self._ran = self._ran, None
        if ran is None:
            return
        context, before, prompt, not_before = ran
        now = time.monotonic()
        seconds = self._clock.completed(not_before, now)
        rows: list[tuple[int, int, int, int]] = []
        context_tokens = 0
        for row, name in enumerate(context.request_ids):
            if name not in before or name not in live:
                continue
            request = live[name].request
            verified = int(context.draft_available[row]) if self._k else 0
            # Filler that happened to be right is no credit to the drafter.
            accepted = max(0, min(int(request.py_num_accepted_draft_tokens), self._found[row]))
            accepted = min(accepted, verified)
            emitted = request.get_num_tokens(0) - before[name]
            emitted = min(emitted, accepted + 1)
            rows.append((int(context.slots[row]), verified, accepted, emitted))
            context_tokens += before[name]
        table: IntArray = np.ascontiguousarray(
            np.array(rows, dtype=np.int64).reshape(len(rows), 4).T
        )
        self.controller.observe(
            StepOutcome(
                step=context.step,
                slots=table[0],
                verified=table[1],
                accepted=table[2],
                emitted=table[3],
                batch_size=len(before),
                batch_tokens=len(before) * (self._k + 1),
                context_tokens=context_tokens,
                prefill_tokens=prompt,
                draft_depth=self._k,
                ragged=False,
                seconds=seconds,
                now=now,
            )
        )

    def _build(self, live: list[LiveRequest]) -> StepContext:
        slots = self.controller.slots
        names = [name_of(one.request) for one in live]
        self._found = [len(one.drafts) for one in live]
        room: IntArray = np.array([one.left - 1 for one in live], dtype=np.int64)
        # Filler costs as much as drafts, once any request has some: it counts as drafts, rejected.
        filled = self._kmax if any(self._found) else 0
        return StepContext(
            step=self._step,
            capability=self._capability,
            request_ids=names,
            slots=np.array([slots.assign(name) for name in names], dtype=np.int64),
            context_tokens=np.array([one.tokens for one in live], dtype=np.int64),
            draft_available=room.clip(0, filled),
            draft_possible=(room - 1).clip(0, self._kmax),
            engine_k=self._kmax,
            tpot_target=np.full(len(live), np.inf),
            task=np.full(len(live), -1, dtype=np.int64),
            temperature=np.array([temperature_of(one.request) for one in live]),
            now=time.monotonic(),
        )


def _drafts(plan: SpecPlan) -> bool:
    """Return whether the plan verifies drafts now or drafts for the next iteration."""
    return bool(plan.verify.any()) or (plan.verify.size == 0 and plan.draft_depth > 0)
