"""How sure the drafter was of a request's earlier drafts: the term g_c m_i of history's hazards.

Some tasks keep a drafter sure and others don't. m_i is the mean of the signal z
(`adaptive_spec.acceptance.confidence`) over the request's finished rounds, later ones counting
more, drawn towards that of its task label, or towards 0. g_c >= 0 is learned online, for greedy and
sampled targets apart, with all else that the hazards are made of: after many steps a request's own
u_i says the same and more, but m_i speaks after the first round.

Only finished rounds count, so it may be used for whatever is decided before the drafts are made.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adaptive_spec.acceptance.confidence_kernels import weigh
from adaptive_spec.acceptance.sampling_classes import CLASSES, Columns, columns
from adaptive_spec.errors import PolicyError
from adaptive_spec.kernels import kernel, sum_in_order
from adaptive_spec.step import FloatArray, IntArray

_DISCOUNT = 0.9
"""Of earlier rounds, per round."""
_PRIOR_ROUNDS = 1.0
"""That the label's mean counts for."""
_PRIOR_EVIDENCE = 20.0
"""Of g = 0, in Fisher information."""
_EVIDENCE_LIMIT = 1000.0
_LARGEST_WEIGHT = 4.0
_CERTAINTY, _DOUBT = 3.0, 0.5
"""Standard errors by which g must be above 0, to be used and to be used on. Going to and fro costs
more than a weight that is a little off: u_i has to take over each time."""
_TASK_ROUNDS = 300.0
_MOST_TASKS = 1024


def _round_means_loop(signal: FloatArray) -> FloatArray:
    kmax, batch = signal.shape
    result = np.empty(batch, np.float64)
    for i in range(batch):
        total = 0.0
        drafts = 0
        for j in range(kmax):
            if not np.isnan(signal[j, i]):
                total += signal[j, i]
                drafts += 1
        result[i] = total / drafts if drafts > 0 else np.nan
    return result


@kernel(
    "float64[:](float64[:, :])",
    _round_means_loop,
)
def round_means(signal: FloatArray) -> FloatArray:
    """Mean [B] of what the drafts of a round have shown [Kmax, B]; nan where nothing is known."""
    known = ~np.isnan(signal)
    drafts = np.count_nonzero(known, axis=0)
    total = sum_in_order(np.where(known, signal, 0.0))
    return np.where(drafts > 0, total / np.maximum(drafts, 1), np.nan)


class EarlierConfidence:
    """m_i by request slot and by task label, and g_c.

    Attributes:
        weight: [CLASSES] g_c, 0 where it is not certain.
    """

    def __init__(self) -> None:
        self.weight: FloatArray = np.zeros(CLASSES)
        self._found: FloatArray = np.zeros(CLASSES)
        self._evidence: FloatArray = np.zeros(CLASSES)
        self._sum: FloatArray = np.zeros(64)
        self._rounds: FloatArray = np.zeros(64)
        self._task_sum: FloatArray = np.zeros(0)
        self._task_rounds: FloatArray = np.zeros(0)

    def logit(self, slots: IntArray, task: IntArray | None, classes: Columns) -> FloatArray | None:
        """g_c m_i [B] of these requests, with their task labels (-1: none); None if all are 0."""
        if not self.weight.any():
            return None
        result: FloatArray = self.weight[classes] * self.mean(slots, task)
        return result

    def mean(self, slots: IntArray, task: IntArray | None = None) -> FloatArray:
        """m_i [B]."""
        self._reach(slots)
        total = self._sum[slots]
        if task is not None and self._task_sum.size:
            known = (task >= 0) & (task < len(self._task_sum))
            number = np.where(known, task, 0)
            of_label = self._task_sum[number] / np.maximum(self._task_rounds[number], 1.0)
            total = total + _PRIOR_ROUNDS * np.where(known, of_label, 0.0)
        mean: FloatArray = total / (self._rounds[slots] + _PRIOR_ROUNDS)
        return mean

    def learn(
        self,
        slots: IntArray,
        task: IntArray | None,
        classes: Columns,
        signal: FloatArray,
        residual: FloatArray,
        information: FloatArray,
    ) -> None:
        """Take up a finished round of these requests [B].

        Args:
            slots: rows of the requests.
            task: numbers of their task labels.
            classes: of their sampling.
            signal: z [Kmax, B] that its drafts had shown, nan if unknown.
            residual: [Kmax, B] y - h, h predicted by history; 0 where unseen.
            information: [Kmax, B] h (1 - h); 0 where unseen.
        """
        mean = self.mean(slots, task)
        weigh(
            mean[None],
            residual.sum(axis=0)[None],
            information.sum(axis=0)[None],
            columns(classes),
            self._found[None],
            self._evidence[None],
            _PRIOR_EVIDENCE,
            _EVIDENCE_LIMIT,
            _LARGEST_WEIGHT,
        )
        self._judge()
        round_mean = round_means(signal)
        shown = ~np.isnan(round_mean)
        if not shown.all():
            slots, round_mean = slots[shown], round_mean[shown]
            task = None if task is None else task[shown]
        self._sum[slots] = _DISCOUNT * self._sum[slots] + round_mean
        self._rounds[slots] = _DISCOUNT * self._rounds[slots] + 1.0
        if task is not None:
            self._learn_tasks(task, round_mean)

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        slots = slots[slots < len(self._sum)]
        self._sum[slots] = self._rounds[slots] = 0.0

    def widen(self, evidence: float) -> None:
        """Trust the past less."""
        self._evidence = np.minimum(self._evidence, evidence)

    def state(self) -> dict[str, Any]:
        """JSON-compatible. Task labels are not kept: each server numbers them anew."""
        return {"weight": self._found.tolist(), "evidence": self._evidence.tolist()}

    def restore(self, state: Any) -> None:
        """Take up a saved state; raises PolicyError if it does not fit."""
        found = []
        for name in ("weight", "evidence"):
            try:
                values = np.asarray(state[name], dtype=np.float64)
            except (KeyError, OverflowError, TypeError, ValueError) as error:
                raise PolicyError(f"earlier confidence does not fit: {error!r}") from error
            if values.shape != (CLASSES,) or not np.isfinite(values).all() or values.min() < 0.0:
                raise PolicyError(
                    f"earlier confidence: {name} must be {CLASSES} finite numbers, not negative"
                )
            found.append(values)
        self._found, self._evidence = np.minimum(found[0], _LARGEST_WEIGHT), found[1]
        self._judge()

    def _judge(self) -> None:
        for place in range(CLASSES):
            found = float(self._found[place])
            least = _DOUBT if self.weight[place] > 0.0 else _CERTAINTY
            certain = found * math.sqrt(self._evidence[place]) > least
            self.weight[place] = found if certain else 0.0

    def _reach(self, slots: IntArray) -> None:
        missing = int(slots.max(initial=-1)) + 1 - len(self._sum)
        if missing > 0:
            more = np.zeros(max(missing, len(self._sum)))
            self._sum = np.concatenate((self._sum, more))
            self._rounds = np.concatenate((self._rounds, more))

    def _learn_tasks(self, task: IntArray, mean: FloatArray) -> None:
        known = (task >= 0) & (task < _MOST_TASKS)
        if not known.any():
            return
        task, mean = task[known], mean[known]
        missing = int(task.max()) + 1 - len(self._task_sum)
        if missing > 0:
            self._task_sum = np.concatenate((self._task_sum, np.zeros(missing)))
            self._task_rounds = np.concatenate((self._task_rounds, np.zeros(missing)))
        np.add.at(self._task_sum, task, mean)
        np.add.at(self._task_rounds, task, 1.0)
        held = np.minimum(1.0, _TASK_ROUNDS / self._task_rounds[task])
        self._task_sum[task] *= held
        self._task_rounds[task] *= held
