"""Effects v_t of task labels: requests of a task may accept more drafts than those of another.

A label speaks from a request's first step on. Labels are numbered anew by each server, so their
effects are not saved. Numbers grow without end, as labels come and go; a new number takes the place
of one that is `_MOST_TASKS` older.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.step import FloatArray, IntArray

_VARIANCE = 0.5
"""Of v_t between labels, in logits."""
_EVIDENCE_LIMIT = 300.0
_MOST_TASKS = 1024
"""Places for labels, far more than are in use at a time."""


def any_label(task: IntArray | None) -> bool:
    """Some request has a label; -1 is none."""
    return task is not None and bool(np.maximum.reduce(task, initial=-1) >= 0)


class TaskEffects:
    """v_t by the number of the label."""

    def __init__(self) -> None:
        self._number: IntArray = np.zeros(0, dtype=np.int64)
        """Number of the label in each place; -1 in a free place."""
        self._effect: FloatArray = np.zeros(0)
        self._evidence: FloatArray = np.zeros(0)

    def __len__(self) -> int:
        return len(self._effect)

    def of(self, task: IntArray) -> FloatArray:
        """v_t [B] of these labels [B]; 0 without a label."""
        if not len(self._effect):
            return np.zeros(len(task))
        place = np.minimum(task % _MOST_TASKS, len(self._effect) - 1)
        known = (task >= 0) & (self._number[place] == task)
        return np.where(known, self._effect[place], 0.0)

    def learn(self, task: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums [B] of y - h and h (1 - h) over the drafts of each request."""
        labelled = task >= 0
        number = task[labelled]
        place = number % _MOST_TASKS
        more = int(place.max(initial=-1)) + 1 - len(self._effect)
        if more > 0:
            self._effect = np.concatenate([self._effect, np.zeros(more)])
            self._evidence = np.concatenate([self._evidence, np.zeros(more)])
            self._number = np.concatenate([self._number, np.full(more, -1)])
        new = place[self._number[place] < number]
        self._effect[new] = self._evidence[new] = 0.0
        np.maximum.at(self._number, place, number)
        own = self._number[place] == number
        size = len(self._effect)
        gradient = np.bincount(place[own], weights=residual[labelled][own], minlength=size)
        seen = np.bincount(place[own], weights=information[labelled][own], minlength=size)
        self._evidence = np.minimum(self._evidence, _EVIDENCE_LIMIT) + seen
        self._effect = self._effect + gradient / (self._evidence + 1.0 / _VARIANCE)

    def state(self) -> dict[str, list[float]]:
        """Return the effects, JSON-compatible; for labels that mean the same in every process."""
        return {"effect": self._effect.tolist(), "evidence": self._evidence.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state. Raises PolicyError, and changes nothing, if it does not fit."""
        try:
            effect, evidence = (np.array(state[key], dtype=float) for key in ("effect", "evidence"))
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        fits = effect.ndim == 1 and effect.shape == evidence.shape and len(effect) <= _MOST_TASKS
        if not fits or not np.isfinite(effect + evidence).all() or (evidence < 0.0).any():
            raise PolicyError("acceptance state does not fit: effects of labels")
        self._effect, self._evidence = effect, evidence
        self._number = np.arange(len(effect))

    def widen(self, evidence: float) -> None:
        """Trust the past less."""
        self._evidence = np.minimum(self._evidence, evidence)
