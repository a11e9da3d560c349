"""Limit on how often K changes.

Every change makes SGLang swap its runtime state, rebuild its chain buffers and write a log line.
A limit on the rate, with a burst, keeps that small without stretching a look at a deeper K, which
is one step up and one step back.
"""

from __future__ import annotations

from collections.abc import Collection

BURST = 8
"""Changes that may follow each other at once after a quiet time."""


class SwitchLimit:
    """Limit of one change in `dwell` steps on average.

    Args:
        dwell: steps per change; 1 allows a change at every step.
    """

    def __init__(self, dwell: int) -> None:
        self._dwell = dwell
        self._burst = BURST * dwell
        self._saved = self._burst
        self._k: int | None = None
        self.changes = 0
        self.held = 0

    def ran(self, k: int) -> None:
        """Note a K that ran in this step without our choice."""
        self._saved = min(self._saved + 1, self._burst)
        self._k = k

    def settle(self, k: int, runnable: Collection[int], room: int) -> int:
        """Return the K to run; called once per step, unless `ran` was called.

        Where all requests are about to end, a smaller K is taken only if the way back can follow at
        once: the requests that come next want the larger one again.

        Args:
            k: the one that is wanted.
            runnable: what may run with this many requests; a K that isn't in it is never kept.
            room: most drafts that a request has a use for before its end.
        """
        self._saved = min(self._saved + 1, self._burst)
        if self._k is None or k == self._k:
            self._k = k
        elif room <= k < self._k and self._saved < 2 * self._dwell and self._k in runnable:
            self.held += 1
        elif self._saved >= self._dwell or self._k not in runnable:
            self._saved = max(self._saved - self._dwell, 0)
            self.changes += 1
            self._k = k
        else:
            self.held += 1
        return self._k
