"""Constants of live requests, in columns with a row per request slot.

An adapter reads a request once, when the request first appears in the running batch, so that a step
costs one dict look-up per request. The next request of a freed slot overwrites the whole row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.engines.hints import NO_CAP, NO_HINTS, Hints
from adaptive_spec.per_request import (
    RequestSlots,
    SlotArray,
    floats,
    highest_of,
    integers,
    lowest_of,
)
from adaptive_spec.step import BoolArray, FloatArray, IntArray

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


class RequestRows(NamedTuple):
    """Constants of the requests of a batch; one value while the same requests decode.

    Attributes:
        names: [B] the engine's own ids.
        version: `RequestTable.version`.
        slots: [B] slots of the requests.
        draft_cap: [B] most drafts of the drafter to verify, `NO_CAP` without a cap; 0 once the
            drafter has lost the request.
        copied_cap: [B] most copied drafts to verify, which need no drafter.
        task: [B] number of the task label; -1 without one.
        prompt_tokens: [B] length of the prompt.
        most_output: [B] most tokens that the request may emit.
        tpot_target: [B] requested seconds per output token; inf without a target.
        temperature: [B] sampling temperature; 0 where decoding is greedy.
        opted_out: [B] whether the client wants no speculation; None where no client does.
    """

    names: list[str]
    version: int
    slots: IntArray
    draft_cap: IntArray
    copied_cap: IntArray
    task: IntArray
    prompt_tokens: IntArray
    most_output: IntArray
    tpot_target: FloatArray
    temperature: FloatArray
    opted_out: BoolArray | None

    def depth_cap(self, kmax: int) -> IntArray:
        """Return [B] the drafts to count on in choosing a depth.

        That is the largest cap of a request in the batch for all that are drafted for, so that a
        client's cap does not make drafting shallower for others, and 0 for the rest.
        """
        caps = self.draft_cap
        return np.where(caps > 0, min(highest_of(caps), kmax), 0)


class RequestTable:
    """Constants of live requests.

    Args:
        slots: slots of the controller.
        read: the adapter's reader of one engine request. A request that the reader fails on has
            the defaults of `RequestConstants`: it must not stop the plans of all others.
    """

    def __init__(self, slots: RequestSlots, read: Callable[[Any], RequestConstants]) -> None:
        self._slots = slots
        self._read = read
        # Columns as in `RequestRows`: draft_cap to most_output; tpot_target and temperature.
        self._whole = integers(0, 5)
        self._real = floats(0.0, 2)
        self._rows: RequestRows | None = None
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
        hints, cap = constants.hints, constants.hints.draft_cap
        self._whole[row] = np.array(
            [cap, cap, hints.task, constants.prompt_tokens, constants.most_output]
        )
        self._real[row] = np.array([hints.tpot_seconds, constants.temperature])
        for column in self._own_columns:
            column.reset(row)
        return slot

    def rows_of(self, names: list[str], requests: Sequence[Any]) -> RequestRows:
        """Return the constants of a batch; read the requests that are new.

        Args:
            names: [B] the engine's own ids of the requests.
            requests: [B] the engine's request objects.
        """
        rows = self._rows
        if rows is None or not self.holds(names):
            found = self._slots.of(names)
            if None in found:
                pairs = zip(found, names, requests, strict=True)
                found = [self.enter(n, r) if slot is None else slot for slot, n, r in pairs]
            slots: IntArray = np.array(found, dtype=np.int64)
            cap, copied, task, prompt, most = self._whole[slots].T.copy()
            target, temperature = self._real[slots].T.copy()
            self._rows = rows = RequestRows(
                names,
                self.version,
                slots,
                cap,
                copied,
                task,
                prompt,
                most,
                target,
                temperature,
                opted_out=copied == 0 if lowest_of(copied) == 0 else None,
            )
        return rows

    def holds(self, names: list[str]) -> bool:
        """Return whether the batch read last is of these requests, and none has ended since."""
        rows = self._rows
        return rows is not None and rows.version == self.version and rows.names == names

    def knows(self, name: str) -> bool:
        """Return whether a request has a slot."""
        return name in self._slots

    def stop_drafting(self, slots: IntArray) -> int:
        """Draft for these requests no more; return how many had a cap above 0."""
        stopped = slots[self._whole[slots][:, 0] > 0]
        self._slots.without_drafter.update(stopped.tolist())
        self._whole.rows[stopped, 0] = 0
        self._stops += 1
        return len(stopped)
