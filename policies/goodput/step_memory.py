"""What a planned step has to be learned from, until its outcome arrives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptive_spec.step import FloatArray, IntArray, StepContext

_REMEMBERED_STEPS = 8


class PlannedStep(NamedTuple):
    """One step as it was planned."""

    slots: IntArray
    task: IntArray
    signal: FloatArray | None
    """[Kmax, B] what the drafter showed for the drafts at hand."""
    goodput: float = float("nan")
    """Of the step's outlook; nan if it was not planned by it."""

    def of(self, slots: IntArray) -> PlannedStep | None:
        """The same for the requests that are still there, in their order; None if one is not."""
        if len(slots) == len(self.slots) and (slots == self.slots).all():
            return self
        order = np.argsort(self.slots)
        place = np.searchsorted(self.slots, slots, sorter=order)
        rows = order[np.minimum(place, len(order) - 1)]
        if len(order) == 0 or (self.slots[rows] != slots).any():
            return None
        signal = None if self.signal is None else self.signal[:, rows]
        return PlannedStep(slots, self.task[rows], signal, self.goodput)


class StepMemory:
    """The last few planned steps, by number."""

    def __init__(self) -> None:
        self._steps: dict[int, PlannedStep] = {}

    def keep(
        self, context: StepContext, signal: FloatArray | None, goodput: float = float("nan")
    ) -> None:
        """Remember a step; steps that never had an outcome fall out."""
        self._steps[context.step] = PlannedStep(context.slots, context.task, signal, goodput)
        while len(self._steps) > _REMEMBERED_STEPS:
            del self._steps[next(iter(self._steps))]

    def take(self, step: int, slots: IntArray) -> PlannedStep | None:
        """The step as these requests [B] knew it; None if it is not remembered so."""
        planned = self._steps.pop(step, None)
        return None if planned is None else planned.of(slots)
