"""Effects v_t of task labels: requests of a task may accept more drafts than those of another.

A label speaks from a request's first step on. Labels are numbered anew by each server, so their
effects are not saved.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray, IntArray

_VARIANCE = 0.5
"""Of v_t between labels, in logits."""
_EVIDENCE_LIMIT = 300.0
_MOST_TASKS = 1024


def any_label(task: IntArray | None) -> bool:
    """Some request has a label; -1 is none."""
    return task is not None and bool(np.maximum.reduce(task, initial=-1) >= 0)


class TaskEffects:
    """v_t by the number of the label; labels beyond the first thousand have no effect."""

    def __init__(self) -> None:
        self._effect: FloatArray = np.zeros(0)
        self._evidence: FloatArray = np.zeros(0)

    def __len__(self) -> int:
        return len(self._effect)

    def of(self, task: IntArray) -> FloatArray:
        """v_t [B] of these labels [B]; 0 without a label."""
        known = (task >= 0) & (task < len(self._effect))
        return np.where(known, self._effect[np.where(known, task, 0)], 0.0)

    def learn(self, task: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums [B] of y - h and h (1 - h) over the drafts of each request."""
        top = min(int(task.max()) + 1, _MOST_TASKS)
        if top > len(self._effect):
            extra = np.zeros(top - len(self._effect))
            self._effect = np.concatenate([self._effect, extra])
            self._evidence = np.concatenate([self._evidence, extra])
        known = (task >= 0) & (task < _MOST_TASKS)
        size = len(self._effect)
        gradient = np.bincount(task[known], weights=residual[known], minlength=size)
        seen = np.bincount(task[known], weights=information[known], minlength=size)
        self._evidence = np.minimum(self._evidence, _EVIDENCE_LIMIT) + seen
        self._effect = self._effect + gradient / (self._evidence + 1.0 / _VARIANCE)

    def widen(self, evidence: float) -> None:
        """Trust the past less."""
        self._evidence = np.minimum(self._evidence, evidence)
