"""Small integers that stand for live requests.

Policies keep per-request state in arrays. `RequestSlots` hands each request a row when it is
first seen and takes it back when the request has ended, so that memory is bounded by the
number of requests alive at once. A freed row is reused last, never first: an outcome that is
still under way when its request ends cannot reach a new request's row.
"""

from __future__ import annotations

from collections import deque


class RequestSlots:
    """Maps request ids to rows of the policies' arrays."""

    def __init__(self) -> None:
        self._slot_of: dict[str, int] = {}
        self._free: deque[int] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._slot_of

    @property
    def capacity(self) -> int:
        """Rows handed out so far; every slot is below it."""
        return self._size

    def assign(self, request_id: str) -> int:
        """The request's slot; a new request gets one."""
        slot = self._slot_of.get(request_id)
        if slot is None:
            # Keep a reserve of free rows so that none is reused at once.
            if len(self._free) > 16:
                slot = self._free.popleft()
            else:
                slot = self._size
                self._size += 1
            self._slot_of[request_id] = slot
        return slot

    def get(self, request_id: str) -> int | None:
        """The request's slot, or None if it is not known."""
        return self._slot_of.get(request_id)

    def release(self, request_id: str) -> int | None:
        """Give a request's slot back; returns it, or None if the request was not known."""
        slot = self._slot_of.pop(request_id, None)
        if slot is not None:
            self._free.append(slot)
        return slot
