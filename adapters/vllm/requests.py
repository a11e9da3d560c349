"""What never changes about a request, kept in arrays by slot.

Everything here is read once, when a request is first seen in the running batch, so that a step
costs one dict look-up per request. A freed slot's row is overwritten by its next request: nothing
is left of a finished one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adaptive_spec.adapters.vllm.hints import HintReader
from adaptive_spec.engines.hints import MAX_TASKS, NO_CAP
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.step import FloatArray, IntArray

MAX_KINDS = 64
"""Combinations of LoRA adapter, structured output and task label that get a number, beside labels
alone; later ones share the label's."""


class RequestTable:
    """Constants of live requests.

    Attributes:
        draft_cap: [slot] most drafts to verify, `NO_CAP` without a cap.
        tpot_target: [slot] seconds per output token asked for; inf if none.
        task: [slot] number of the task label, another for each LoRA adapter it comes with, and for
            structured output: what an adapter says, or a grammar allows, is accepted or not for
            reasons of its own; -1 without any of them.
        temperature: [slot] sampling temperature.
    """

    def __init__(self, slots: RequestSlots, reader: HintReader) -> None:
        self._slots = slots
        self._reader = reader
        self.draft_cap: IntArray = np.empty(0, dtype=np.int64)
        self.tpot_target: FloatArray = np.empty(0)
        self.task: IntArray = np.empty(0, dtype=np.int64)
        self.temperature: FloatArray = np.empty(0)
        self._kinds: dict[tuple[int, str | None, bool], int] = {}

    def enter(self, request: Any) -> int:
        """Give a request its slot and read its constants."""
        slot = self._slots.assign(request.request_id)
        if slot >= len(self.draft_cap):
            self._grow(2 * slot + 64)
        sampling = request.sampling_params
        hints = self._reader.read(sampling.extra_args if sampling is not None else None)
        self.draft_cap[slot] = hints.draft_cap
        self.tpot_target[slot] = hints.tpot_seconds
        self.task[slot] = self._task_of(hints.task, request)
        self.temperature[slot] = sampling.temperature if sampling is not None else 0.0
        return slot

    def stop_drafting(self, slot: int) -> bool:
        """No drafts for this request to its end; False if it had none already."""
        stopped = bool(self.draft_cap[slot] > 0)
        self.draft_cap[slot] = 0
        return stopped

    def _task_of(self, label: int, request: Any) -> int:
        """The number of a task label with what else tells requests apart; see `task`."""
        lora, structured = request.lora_request, request.use_structured_output
        if lora is None and not structured:
            return label
        kind = label, None if lora is None else lora.lora_name, structured
        known = self._kinds
        if kind not in known and len(known) < MAX_KINDS:
            known[kind] = MAX_TASKS + len(known)
        return known.get(kind, label)

    def _grow(self, size: int) -> None:
        extra = size - len(self.draft_cap)
        self.draft_cap = np.append(self.draft_cap, np.full(extra, NO_CAP, dtype=np.int64))
        self.tpot_target = np.append(self.tpot_target, np.full(extra, math.inf))
        self.task = np.append(self.task, np.full(extra, -1, dtype=np.int64))
        self.temperature = np.append(self.temperature, np.zeros(extra))
