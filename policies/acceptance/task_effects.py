"""Effects v_t of task labels: requests of a task may accept more drafts than those of another.

A label speaks from a request's first step on. Labels are numbered anew by each server, so their
effects are not saved. Numbers grow without end, as labels come and go; a new number takes the place
of one that is `MOST_TASKS` older.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.step import FloatArray, IntArray

_VARIANCE = 0.5
"""Variance of v_t between labels, in logits."""
_EVIDENCE_LIMIT = 300.0
MOST_TASKS = 1024
"""Places for labels, far more than are in use at a time."""


class TaskEffects:
    """v_t by the number of the label.

    Attributes:
        number: [places] number of the label in each place; -1 in a free place.
        effect: [places] v_t.
    """

    def __init__(self) -> None:
        self.number: IntArray = np.zeros(0, dtype=np.int64)
        self.effect: FloatArray = np.zeros(0)
        self._evidence: FloatArray = np.zeros(0)

    def __len__(self) -> int:
        return len(self.effect)

    def of(self, task: IntArray) -> FloatArray:
        """v_t [B] of these labels [B]; 0 without a label."""
        if not len(self.effect):
            return np.zeros(len(task))
        place = np.minimum(task % MOST_TASKS, len(self.effect) - 1)
        known = (task >= 0) & (self.number[place] == task)
        return np.where(known, self.effect[place], 0.0)

    def learn(self, task: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums [B] of y - h and h (1 - h) over the drafts of each request."""
        highest = max(task.tolist(), default=-1)
        if highest < 0:
            return
        more = min(highest + 1, MOST_TASKS) - len(self.effect)
        if more > 0:
            self.effect = np.concatenate([self.effect, np.zeros(more)])
            self._evidence = np.concatenate([self._evidence, np.zeros(more)])
            self.number = np.concatenate([self.number, np.full(more, -1)])
        labelled, size = task >= 0, len(self.number)
        own = task[labelled]
        place = own % MOST_TASKS
        new = place[self.number[place] < own]
        self.effect[new] = self._evidence[new] = 0.0
        np.maximum.at(self.number, place, own)
        kept = self.number[place] == own
        gradient = np.bincount(place[kept], weights=residual[labelled][kept], minlength=size)
        seen = np.bincount(place[kept], weights=information[labelled][kept], minlength=size)
        self._evidence = np.minimum(self._evidence, _EVIDENCE_LIMIT) + seen
        self.effect += gradient / (self._evidence + 1.0 / _VARIANCE)

    def state(self) -> dict[str, list[float]]:
        """Return the effects, JSON-compatible; for labels that mean the same in every process."""
        return {"effect": self.effect.tolist(), "evidence": self._evidence.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state. Raises PolicyError, and changes nothing, if it does not fit."""
        try:
            effect, evidence = (np.array(state[key], dtype=float) for key in ("effect", "evidence"))
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        fits = effect.ndim == 1 and effect.shape == evidence.shape and len(effect) <= MOST_TASKS
        if not fits or not np.isfinite(effect + evidence).all() or (evidence < 0.0).any():
            raise PolicyError("acceptance state does not fit: effects of labels")
        self.effect, self._evidence = effect, evidence
        self.number = np.arange(len(effect))

    def widen(self, evidence: float) -> None:
        """Trust the past less."""
        self._evidence = np.minimum(self._evidence, evidence)
