"""Requests by how their target samples: greedily, or at a temperature.

A drafter that is sure or unsure means different things to the two. At temperature 0.8 a draft of
maximum probability p is accepted about p of the time; a greedy target accepts half of the drafts
of probability .05, since its own likeliest token is often the same. So what is learned of the
drafter's confidence is kept by class, and requests of the two differ in their hazards by an offset
that is learned from both together.

A server all of whose requests are alike pays nothing for this: only once both kinds have been seen
is the class of each request kept.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.step import FloatArray, IntArray

CLASSES = 2
"""0 greedy, 1 sampled."""
Columns: TypeAlias = IntArray | slice
"""Picks from arrays [..., CLASSES] what holds for each request: [..., B], or [..., 1] for all."""
GREEDY = slice(0, 1)
_ALL: IntArray = np.arange(CLASSES)
_UNKNOWN = -1
_OFFSET_VARIANCE = 1.0
_EVIDENCE_LIMIT = 1000.0


class SamplingClasses:
    """The class of each request slot.

    Attributes:
        mixed: both classes have been seen.
    """

    def __init__(self) -> None:
        self.mixed = False
        self._usual: int | None = None
        self._class: IntArray = np.full(64, _UNKNOWN)

    def see(self, slots: IntArray, temperature: FloatArray) -> None:
        """The requests [B] of a step, and their sampling temperatures [B]."""
        sampled = int(np.count_nonzero(temperature))
        if 0 < sampled < len(slots) or not self._all_are(int(sampled > 0)):
            self.mixed = True
            self._reach(slots)
            self._class[slots] = temperature > 0.0
            self._usual = int(2 * sampled > len(slots))

    def _all_are(self, usual: int) -> bool:
        """All there have ever been are of this class, those of this step included."""
        if self._usual is None:
            self._usual = usual
        return not self.mixed and self._usual == usual

    def of(self, slots: IntArray) -> Columns:
        """Which class these requests [B] are of; one not seen yet counts as most others do."""
        usual = self._usual or 0
        if not self.mixed:
            return slice(usual, usual + 1)
        self._reach(slots)
        found = self._class[slots]
        classes: IntArray = np.where(found == _UNKNOWN, usual, found)
        return classes

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        self._class[slots[slots < len(self._class)]] = _UNKNOWN

    def _reach(self, slots: IntArray) -> None:
        missing = int(slots.max(initial=-1)) + 1 - len(self._class)
        if missing > 0:
            more = np.full(max(missing, len(self._class)), _UNKNOWN)
            self._class = np.concatenate((self._class, more))


class ClassOffsets:
    """What a class adds to the logit of every hazard, learned from both together.

    Attributes:
        differ: `offset` is known, of this run or an earlier one.
        offset: [CLASSES].
    """

    def __init__(self) -> None:
        self.differ = False
        self.offset: FloatArray = np.zeros(CLASSES)
        self._evidence: FloatArray = np.zeros(CLASSES)

    def learn(self, classes: Columns, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums over each request's observed positions [B], of y - h and of h (1 - h)."""
        if isinstance(classes, slice):
            return
        held = np.minimum(self._evidence, _EVIDENCE_LIMIT)
        self._evidence = held + np.bincount(classes, weights=information, minlength=CLASSES)
        gradient = np.bincount(classes, weights=residual, minlength=CLASSES)
        self.differ = True
        self.offset = self.offset + gradient / (self._evidence + 1.0 / _OFFSET_VARIANCE)

    def widen(self, evidence: float) -> None:
        """Trust the past less."""
        self._evidence = np.minimum(self._evidence, evidence)

    def state(self) -> dict[str, Any]:
        """JSON-compatible."""
        return {"offset": self.offset.tolist(), "evidence": self._evidence.tolist()}

    def restore(self, state: Any) -> None:
        """Take up a saved state; raises PolicyError if it does not fit."""
        found = []
        for name in ("offset", "evidence"):
            try:
                values = np.asarray(state[name], dtype=np.float64)
            except (KeyError, OverflowError, TypeError, ValueError) as error:
                raise PolicyError(f"sampling classes do not fit: {error!r}") from error
            if values.shape != (CLASSES,) or not np.isfinite(values).all():
                raise PolicyError(f"sampling classes: {name} must be {CLASSES} finite numbers")
            found.append(values)
        self.offset, self._evidence = found[0], np.maximum(found[1], 0.0)
        self.differ = bool(self.offset.any())


def columns(classes: Columns) -> IntArray:
    """The same as numbers: [B], or [1] for all."""
    if isinstance(classes, slice):
        return _ALL[classes]
    return classes
