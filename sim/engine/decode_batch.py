"""The requests that decode, as arrays over the batch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.engine.prompt_queue import Running
from adaptive_spec.step import FloatArray, IntArray


class DecodeBatch:
    """B decoding requests in order of admission. Arrays are replaced, never changed in place.

    Attributes:
        size: B.
        slots: [B] rows of the policy's arrays.
        left: [B] tokens to emit after the next one.
        context: [B] tokens in the KV cache.
        cursor: [B] position of each request in the acceptance data. A prompt's last pass emits the
            first token, so a record's first position belongs to the step with one token emitted:
            in recorded steps, too.
        drafted: [B] drafts at hand.
        stale: [B] no drafts to the end.
        tpot_target, temperature: [B] floats.
        task: [B] number of the task label, -1 without.
        context_total: sum of context lengths.
        any_stale: some request is stale.
    """

    def __init__(self) -> None:
        self.members: list[Running] = []
        self.ids: list[str] = []
        self._whole: IntArray = np.zeros((6, 0), dtype=np.int64)
        self._floats: FloatArray = np.zeros((2, 0))
        self.left: IntArray = np.zeros(0, dtype=np.int64)
        self.drafted = self.left
        self.stale: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._changed()

    def join(self, joining: list[Running], tasks: list[int], drafted: int) -> None:
        """Requests whose prompts have run start to decode, with this many drafts at hand."""
        requests = [each.request for each in joining]
        more = (
            [each.slot for each in joining],
            tasks,
            [each.prompt_tokens for each in requests],
            [each.output_tokens for each in requests],
            [each.start for each in joining],
            [each.length for each in joining],
        )
        floats = [each.tpot_target for each in requests], [each.temperature for each in joining]
        left = [each.request.output_tokens - each.emitted - 1 for each in joining]
        self.members = self.members + joining
        self.ids = self.ids + [each.id for each in requests]
        self._whole = np.concatenate((self._whole, np.array(more, dtype=np.int64)), axis=1)
        self._floats = np.concatenate((self._floats, np.array(floats)), axis=1)
        self.left = np.append(self.left, left)
        self.drafted = np.append(self.drafted, [drafted] * len(joining))
        self.stale = np.append(self.stale, [each.stale for each in joining])
        self._changed()

    def leave(self, leaving: NDArray[np.bool_]) -> list[Running]:
        """Take out the requests of a mask [B]; returns them, their `emitted` brought up to date."""
        emitted, gone = self.emitted, []
        for i in np.flatnonzero(leaving).tolist():
            member = self.members[i]
            member.emitted = int(emitted[i])
            member.stale = bool(self.stale[i])
            gone.append(member)
        kept = np.flatnonzero(~leaving)
        self.members = [self.members[i] for i in kept.tolist()]
        self.ids = [self.ids[i] for i in kept.tolist()]
        self._whole = self._whole.take(kept, axis=1)
        self._floats = self._floats.take(kept, axis=1)
        self.left, self.drafted = self.left[kept], self.drafted[kept]
        self.stale = self.stale[kept]
        self._changed()
        return gone

    @property
    def emitted(self) -> IntArray:
        """[B] tokens emitted so far, by prompt and decode steps."""
        emitted: IntArray = self._total - 1 - self.left
        return emitted

    def advance(self, emitted: IntArray, total: int, depth: int) -> None:
        """A step has emitted these tokens, `total` in all, and drafted so deep for the next."""
        self.left = self.left - emitted
        self.drafted = _all(self.size, depth)
        self.context_total += total
        self._move()

    def spoil(self) -> None:
        """The drafter's state has missed a step: no drafts for these requests any more."""
        self.stale = np.ones(self.size, dtype=np.bool_)
        self.any_stale = self.size > 0

    def _changed(self) -> None:
        self.size = len(self.members)
        self.slots, self.task, prompt, self._total, self._start, self._length = self._whole
        self.tpot_target, self.temperature = self._floats
        self._wraps = bool((self._total > self._length).any())
        self._full_context = prompt + self._total - 1
        self._last_position = self._start + self._total - 2
        self.any_stale = bool(self.stale.any())
        self._move()
        self.context_total = int(self.context.sum())

    def _move(self) -> None:
        self.context = self._full_context - self.left
        self.cursor = self._position(self.left)

    def _position(self, left: IntArray) -> IntArray:
        """[B] position in the acceptance data; an output beyond its record starts over in it."""
        position: IntArray = self._last_position - left
        if self._wraps:
            position = self._start + (position - self._start) % self._length
        return position


@lru_cache(maxsize=1024)
def _all(size: int, depth: int) -> IntArray:
    """[B] the same depth for all, read-only."""
    return np.broadcast_to(np.int64(depth), size)
