"""Constants of live requests, in columns with a row per request slot.

An adapter reads a request once, when the request first appears in the running batch, so that a step
costs one dict look-up per request. The next request of a freed slot overwrites the whole row.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.engines.hints import NO_CAP, NO_HINTS, Hints
from adaptive_spec.per_request import RequestSlots, SlotArray, floats, integers
from adaptive_spec.step import BoolArray, IntArray

_LOG = logging.getLogger(__name__)


class RequestConstants(NamedTuple):
    """Constants of one request; a field that an adapter does not read keeps its default.

    Attributes:
        hints: the client's hints.
        temperature: sampling temperature; 0 where decoding is greedy.
        prompt_tokens: length of the prompt.
        most_output: most tokens that the request may emit.
    """

    hints: Hints = NO_HINTS
    temperature: float = 0.0
    prompt_tokens: int = 0
    most_output: int = NO_CAP


class RequestTable:
    """Constants of live requests.

    Args:
        slots: slots of the controller.
        read: the adapter's reader of one engine request. A request that the reader fails on has
            the defaults of `RequestConstants`: it must not stop the plans of all others.

    Attributes:
        draft_cap: [slot] most drafts of the drafter to verify, `NO_CAP` without a cap; 0 once the
            drafter has lost the request.
        copied_cap: [slot] most copied drafts to verify, which need no drafter.
        tpot_target: [slot] requested seconds per output token; inf without a target.
        task: [slot] number of the task label; -1 without one.
        temperature: [slot] sampling temperature; 0 where decoding is greedy.
        prompt_tokens: [slot] length of the prompt.
        most_output: [slot] most tokens that the request may emit.
    """

    def __init__(self, slots: RequestSlots, read: Callable[[Any], RequestConstants]) -> None:
        self._slots = slots
        self._read = read
        self.draft_cap = integers(NO_CAP)
        self.copied_cap = integers(NO_CAP)
        self.tpot_target = floats(math.inf)
        self.task = integers(-1)
        self.temperature = floats(0.0)
        self.prompt_tokens = integers(0)
        self.most_output = integers(NO_CAP)
        self._stops = 0
        self._own_columns: list[SlotArray[np.int64]] = []

    @property
    def version(self) -> int:
        """Number that changes before a live request's slot or constants do."""
        return self._slots.released + self._stops

    def add_column(self, fill: int) -> SlotArray[np.int64]:
        """Add and return an adapter's own column, which starts at `fill` for each new request."""
        column = integers(fill)
        self._own_columns.append(column)
        return column

    def slot_of(self, name: str, request: Any) -> int:
        """Return a request's slot; read the request at first sight.

        Args:
            name: the engine's own id of the request.
            request: the engine's request object.
        """
        slot = self._slots.get(name)
        return self.enter(name, request) if slot is None else slot

    def enter(self, name: str, request: Any) -> int:
        """Read a request and assign a slot to it."""
        try:
            constants = self._read(request)
        except Exception:
            constants = RequestConstants()
            self._slots.unreadable += 1
            # Said once: a reader that fails on one request mostly fails on all.
            level = logging.WARNING if self._slots.unreadable == 1 else logging.DEBUG
            _LOG.log(
                level, "adaptive_spec: a request cannot be read; it has no hints", exc_info=True
            )
        slot = self._slots.assign(name)
        row = np.array([slot])
        hints = constants.hints
        self.draft_cap[row] = self.copied_cap[row] = hints.draft_cap
        self.tpot_target[row] = hints.tpot_seconds
        self.task[row] = hints.task
        self.temperature[row] = constants.temperature
        self.prompt_tokens[row] = constants.prompt_tokens
        self.most_output[row] = constants.most_output
        for column in self._own_columns:
            column.reset(row)
        return slot

    def opted_out(self, slots: IntArray) -> BoolArray | None:
        """Return [B] whether the client wants no speculation; None where no client does."""
        opted_out: BoolArray = self.copied_cap[slots] == 0
        return opted_out if opted_out.any() else None

    def depth_cap(self, slots: IntArray, kmax: int) -> IntArray:
        """Return [B] the drafts to count on in choosing a depth.

        That is the largest cap of a request in the batch for all that are drafted for, so that a
        client's cap does not make drafting shallower for others, and 0 for the rest.
        """
        caps = self.draft_cap[slots]
        return np.where(caps > 0, min(int(caps.max(initial=0)), kmax), 0)

    def stop_drafting(self, slots: IntArray) -> int:
        """Draft for these requests no more; return how many had a cap above 0."""
        stopped = slots[self.draft_cap[slots] > 0]
        self._slots.without_drafter.update(stopped.tolist())
        self.draft_cap[slots] = 0
        self._stops += 1
        return len(stopped)
