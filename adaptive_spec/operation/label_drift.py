"""Task labels whose first drafts are accepted less often than before: drift over hours, by label.

Requests are the unit: those of a label differ, rounds of one request are alike. Each request that
ends brings the share of its rounds whose first draft was accepted. The last `_WINDOW` shares of a
label are compared with those before, which are forgotten slowly. A label has drifted if its mean
fell by `_LEAST_FALL` and by `_DEVIATIONS` standard errors: by chance, with normal means, once in
3.5 million windows. The least fall is twice what the largest change of K alone does to first
drafts in the judge. Nothing is done about it: the event is counted, and the log names the label.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np

from adaptive_spec.per_request import SlotArray, highest_of
from adaptive_spec.step import FinishedStep, FloatArray, IntArray

_EVENT = "label_acceptance_drifted"
_WINDOW, _LEAST_BEFORE = 256, 1024
"""Ended requests that are compared, and fewest before them."""
_LEAST_FALL, _DEVIATIONS = 0.15, 5.0
_KEPT = 0.98
"""Share of what was seen before that a window leaves."""
_LEAST_ROUNDS = 4
_MOST_LABELS = 64


class LabelDrift:
    """Watches the labels that were used last.

    Args:
        names: labels by number.
        logger: told of each drift.
    """

    def __init__(self, names: Mapping[int, str], logger: logging.Logger) -> None:
        self._names, self._log = names, logger
        self._rounds = SlotArray(np.int64(0), (2,))
        """[slots, 2] rounds with drafts, and those whose first draft was accepted."""
        self._label = SlotArray(np.int64(-1))
        self._ending: list[IntArray] = []
        self._sums: dict[str, FloatArray] = {}
        """[2, 3] by label: number, sum and sum of squares of shares, before and in this window."""
        self.count = 0
        self.latest: dict[str, tuple[float, float]] = {}
        """Label -> share of accepted first drafts before its last drift, and then."""

    def ending(self, slots: IntArray) -> None:
        """Requests have ended; the steps that they were in may not be counted yet."""
        self._ending.append(slots)

    def finished(self, steps: Sequence[FinishedStep]) -> None:
        """Count a block of steps, then the requests that have ended."""
        for step in steps:
            if highest_of(step.context.task) >= 0:
                done = step.outcome
                rounds = self._rounds.reaching(highest_of(done.slots))
                rounds[done.slots] += np.stack((done.verified > 0, done.accepted > 0), axis=1)
                self._label[done.slots] = step.context.task
        ending, self._ending = self._ending, []
        for slots in ending:
            each = zip(self._rounds[slots].tolist(), self._label[slots].tolist(), strict=True)
            for (tried, kept), label in each:
                if label >= 0 and tried >= _LEAST_ROUNDS:
                    self._add_share(self._names.get(label, f"task {label}"), kept / tried)
            self._rounds.reset(slots)
            self._label.reset(slots)

    def _add_share(self, label: str, share: float) -> None:
        sums = self._sums[label] = self._sums.pop(label, np.zeros((2, 3)))
        sums[1] += 1.0, share, share * share
        if len(self._sums) > _MOST_LABELS:
            del self._sums[next(iter(self._sums))]
        if sums[1, 0] < _WINDOW:
            return
        if sums[0, 0] >= _LEAST_BEFORE:
            count, mean = sums[:, 0], sums[:, 1] / sums[:, 0]
            variance = np.maximum(sums[:, 2] / count - mean**2, 0.0) / count
            fall = float(mean[0] - mean[1])
            if fall > max(_LEAST_FALL * mean[0], _DEVIATIONS * math.sqrt(variance.sum())):
                self._drifted(label, float(mean[0]), float(mean[1]))
                sums[0] = 0.0
        sums[0] = _KEPT * sums[0] + sums[1]
        sums[1] = 0.0

    def events(self) -> dict[str, int]:
        """Return how often a label has drifted, if one has."""
        return {_EVENT: self.count} if self.count else {}

    def _drifted(self, label: str, before: float, now: float) -> None:
        self.count += 1
        self.latest.pop(label, None)
        self.latest[label] = round(before, 4), round(now, 4)
        if len(self.latest) > _MOST_LABELS:
            del self.latest[next(iter(self.latest))]
        self._log.warning(
            "adaptive_spec: requests labelled %r: first drafts are accepted %.0f %% of the time, "
            "%.0f %% before; the drafter may no longer fit them (event %s)",
            label,
            100 * now,
            100 * before,
            _EVENT,
        )
