"""The requests that decode, as arrays over the batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.engine.running import Running
from adaptive_spec.step import FloatArray, IntArray


class DecodeBatch:
    """B decoding requests in order of admission. Arrays are replaced, never changed in place.

    Attributes:
        slots: [B] rows of the policy's arrays.
        emitted: [B] tokens emitted so far, by prompt and decode steps.
        total: [B] tokens to emit.
        prompt: [B] prompt lengths.
        start, length: [B] acceptance record of each.
        drafted: [B] drafts at hand.
        stale: [B] no drafts to the end.
        tpot_target, temperature: [B] floats.
        task: [B] number of the task label, -1 without.
        context_total: sum of context lengths.
        wraps: some output is longer than its record.
        any_stale: some request is stale.
    """

    def __init__(self) -> None:
        self.members: list[Running] = []
        self.ids: list[str] = []
        empty: IntArray = np.zeros(0, dtype=np.int64)
        self.slots = self.emitted = self.total = self.prompt = empty
        self.start = self.length = self.drafted = self.task = empty
        self.stale: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.tpot_target: FloatArray = np.zeros(0)
        self.temperature: FloatArray = np.zeros(0)
        self.context_total = 0
        self.wraps = False
        self.any_stale = False

    def __len__(self) -> int:
        return len(self.members)

    def join(self, joining: list[Running], tasks: list[int], drafted: int) -> None:
        """Requests whose prompts have run start to decode, with this many drafts at hand."""
        self.members = self.members + joining
        self.ids = self.ids + [each.request.id for each in joining]
        self.slots = _extended(self.slots, [each.slot for each in joining])
        self.emitted = _extended(self.emitted, [each.emitted for each in joining])
        self.total = _extended(self.total, [each.request.output_tokens for each in joining])
        self.prompt = _extended(self.prompt, [each.request.prompt_tokens for each in joining])
        self.start = _extended(self.start, [each.start for each in joining])
        self.length = _extended(self.length, [each.length for each in joining])
        self.drafted = _extended(self.drafted, [drafted] * len(joining))
        self.task = _extended(self.task, tasks)
        self.stale = np.concatenate((self.stale, [each.stale for each in joining]))
        self.tpot_target = np.concatenate(
            (self.tpot_target, [each.request.tpot_target for each in joining])
        )
        self.temperature = np.concatenate(
            (self.temperature, [each.temperature for each in joining])
        )
        self._summarise()

    def leave(self, leaving: NDArray[np.bool_]) -> list[Running]:
        """Take out the requests of a mask [B]; returns them, their `emitted` brought up to date."""
        out = np.flatnonzero(leaving).tolist()
        left = [self.members[i] for i in out]
        for i, member in zip(out, left, strict=True):
            member.emitted = int(self.emitted[i])
            member.stale = bool(self.stale[i])
        keep = ~leaving
        kept = np.flatnonzero(keep).tolist()
        self.members = [self.members[i] for i in kept]
        self.ids = [self.ids[i] for i in kept]
        self.slots, self.emitted = self.slots[keep], self.emitted[keep]
        self.total, self.prompt = self.total[keep], self.prompt[keep]
        self.start, self.length = self.start[keep], self.length[keep]
        self.drafted, self.task = self.drafted[keep], self.task[keep]
        self.stale, self.tpot_target = self.stale[keep], self.tpot_target[keep]
        self.temperature = self.temperature[keep]
        self._summarise()
        return left

    def context(self) -> IntArray:
        """[B] tokens in the KV cache."""
        return self.prompt + self.emitted

    def cursor(self) -> IntArray:
        """[B] position of each request in the acceptance data.

        A prompt's last pass emits the first token, so a record's first position belongs to the
        step with one token emitted: in recorded steps, and in SpecDecode-Bench's simulator.
        """
        done = self.emitted - 1
        if self.wraps:
            done %= self.length
        return self.start + done

    def cursor_after(self, emitted: IntArray) -> IntArray:
        """[B] position once so many more tokens [B] are out; of a request that ends, its last."""
        done = np.minimum(self.emitted + emitted, self.total) - 1
        if self.wraps:
            done %= self.length
        position: IntArray = self.start + done
        return position

    def advance(self, emitted: IntArray, total: int, drafted: IntArray) -> None:
        """A step has emitted these tokens, `total` in all, and drafted so deep [B] for the next."""
        self.emitted = self.emitted + emitted
        self.context_total += total
        self.drafted = drafted

    def spoil(self) -> None:
        """The drafter's state has missed a step: no drafts for these requests any more."""
        self.stale = np.ones(len(self.members), dtype=np.bool_)
        self.any_stale = len(self.members) > 0

    def _summarise(self) -> None:
        self.context_total = int(self.prompt.sum() + self.emitted.sum())
        self.wraps = bool((self.total > self.length).any())
        self.any_stale = bool(self.stale.any())


def _extended(values: IntArray, more: list[int]) -> IntArray:
    return np.concatenate((values, np.array(more, dtype=np.int64)))
