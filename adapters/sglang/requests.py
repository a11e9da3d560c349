"""What never changes about a request, kept in arrays by slot.

Read once, when a request is first seen decoding. A freed slot's row is overwritten by its next
request: nothing is left of a finished one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adaptive_spec.adapters.sglang.hints import HintReader
from adaptive_spec.engines.hints import NO_CAP
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.step import FloatArray, IntArray


class RequestTable:
    """Constants of live requests.

    Attributes:
        names: requests that have a slot.
        draft_cap: [slot] most drafts that count, `NO_CAP` without a cap.
        tpot_target: [slot] seconds per output token asked for; inf if none.
        task: [slot] number of the task label; -1 without one.
        temperature: [slot] sampling temperature; 0 where decoding is greedy.
        prompt_tokens: [slot] length of the prompt.
        most_output: [slot] most tokens the request may emit.
    """

    def __init__(self, slots: RequestSlots, reader: HintReader) -> None:
        self._slots = slots
        self._reader = reader
        self.names: set[str] = set()
        self.draft_cap: IntArray = np.empty(0, dtype=np.int64)
        self.tpot_target: FloatArray = np.empty(0)
        self.task: IntArray = np.empty(0, dtype=np.int64)
        self.temperature: FloatArray = np.empty(0)
        self.prompt_tokens: IntArray = np.empty(0, dtype=np.int64)
        self.most_output: IntArray = np.empty(0, dtype=np.int64)

    def slot_of(self, request: Any) -> int:
        """The request's slot; a request seen for the first time gets one."""
        slot = self._slots.get(request.rid)
        return self._enter(request) if slot is None else slot

    def _enter(self, request: Any) -> int:
        # All is read before there is a slot: what raises must not leave the last owner's values.
        sampling = request.sampling_params
        hints = self._reader.read(getattr(sampling, "custom_params", None))
        # SGLang writes greedy decoding as top_k = 1 at temperature 1.
        temperature = 0.0 if sampling.top_k == 1 else float(sampling.temperature)
        prompt = len(request.origin_input_ids)
        most = NO_CAP if sampling.max_new_tokens is None else int(sampling.max_new_tokens)
        slot = self._slots.assign(request.rid)
        self.names.add(request.rid)
        if slot >= len(self.draft_cap):
            self._grow(2 * slot + 64)
        self.draft_cap[slot] = hints.draft_cap
        self.tpot_target[slot] = hints.tpot_seconds
        self.task[slot] = hints.task
        self.temperature[slot] = temperature
        self.prompt_tokens[slot] = prompt
        self.most_output[slot] = most
        return slot

    def _grow(self, size: int) -> None:
        extra = size - len(self.draft_cap)
        zeros = np.zeros(extra, dtype=np.int64)
        self.draft_cap = np.append(self.draft_cap, zeros)
        self.tpot_target = np.append(self.tpot_target, np.full(extra, math.inf))
        self.task = np.append(self.task, zeros)
        self.temperature = np.append(self.temperature, np.zeros(extra))
        self.prompt_tokens = np.append(self.prompt_tokens, zeros)
        self.most_output = np.append(self.most_output, zeros)
