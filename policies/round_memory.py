"""What a plan went by, kept until the outcome of its step arrives.

Outcomes come zero to two steps late and without the requests that have ended meanwhile. Policies
that learn from a signal of the drafter need it beside the outcome.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from adaptive_spec.step import FloatArray, IntArray, StepOutcome

_KEPT = 8
"""Steps that may be waiting; engines schedule at most two ahead."""


class Recalled(NamedTuple):
    """Rows of a step, for those requests of the outcome that were in the plan. R of them.

    Attributes:
        rows: [R] which entries of the outcome they are.
        signals: what was remembered, [R, ...] each, in the order it was given.
    """

    rows: IntArray
    signals: tuple[FloatArray, ...]


class RoundMemory:
    """Signals of the last few steps."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, IntArray, tuple[FloatArray, ...]]] = deque(maxlen=_KEPT)

    def remember(self, step: int, slots: IntArray, *signals: FloatArray) -> None:
        """Keep `signals`, [B, ...] each, of the requests in `slots` [B]."""
        self._steps.append((step, slots, signals))

    def recall(self, outcome: StepOutcome) -> Recalled | None:
        """The signals of the outcome's step, once; None if nothing was kept for it."""
        while self._steps and self._steps[0][0] < outcome.step:
            self._steps.popleft()
        if not self._steps or self._steps[0][0] != outcome.step:
            return None
        _, slots, signals = self._steps.popleft()
        if np.array_equal(slots, outcome.slots):
            return Recalled(np.arange(len(slots)), signals)
        order = np.argsort(slots, kind="stable")
        place = np.searchsorted(slots, outcome.slots, sorter=order)
        place = order[np.minimum(place, len(slots) - 1)] if len(slots) else place
        known = slots[place] == outcome.slots if len(slots) else np.zeros(len(place), np.bool_)
        rows = np.flatnonzero(known)
        return Recalled(rows, tuple(signal[place[rows]] for signal in signals))
