"""Features of the linear bandits: per batch and per request.

Confidence and entropy are those of the request's drafts in the step *before*: a draft, or a value
computed from it, must not influence its own verification.
"""

from __future__ import annotations

import zlib

import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.step import FloatArray, IntArray, StepContext, StepOutcome

TASK_BINS = 4
NAMES = (
    "one",
    "load",
    "context",
    "acceptance",
    "confidence",
    "entropy",
    "temperature",
    "kv_free",
    *(f"task_{number}" for number in range(TASK_BINS)),
)
DIMENSIONS = len(NAMES)
_ACCEPTANCE, _CONFIDENCE, _ENTROPY = 3, 4, 5

_PRIOR_HAZARD, _PRIOR_WEIGHT = 0.67, 2.0
_HISTORY_DISCOUNT = 0.97


class RequestFeatures:
    """Features of requests, with history by slot. All within about -2..2."""

    def __init__(self) -> None:
        self._succeeded, self._seen = floats(0.0), floats(0.0)
        self._signal = floats(0.0, 2)
        """Confidence and entropy of the last step's drafts, centred; 0 if unknown."""

    def of_requests(self, context: StepContext) -> FloatArray:
        """Return [B, d] one row per request."""
        slots = context.slots
        rows = np.empty((context.batch_size, DIMENSIONS))
        rows[:, 0] = 1.0
        rows[:, 1] = np.log2(max(context.batch_size, 1)) / 8.0
        rows[:, 2] = np.log2(context.context_tokens + 1.0) / 16.0
        known = self._succeeded[slots] + _PRIOR_WEIGHT * _PRIOR_HAZARD
        rows[:, 3] = 2.0 * (known / (self._seen[slots] + _PRIOR_WEIGHT) - _PRIOR_HAZARD)
        rows[:, 4:6] = self._signal[slots]
        rows[:, 6] = np.minimum(context.temperature, 2.0)
        rows[:, 7] = context.kv_free_tokens / max(context.kv_total_tokens, 1)
        rows[:, 8:] = _task_bin(context.task)[:, None] == np.arange(TASK_BINS)
        self._remember_signal(context)
        return rows

    def learn(self, outcome: StepOutcome) -> None:
        """Learn from the accepted drafts of each request."""
        slots = outcome.slots
        seen = np.minimum(outcome.accepted + 1, outcome.verified)
        fade = np.where(seen > 0, _HISTORY_DISCOUNT, 1.0)
        self._succeeded[slots] = self._succeeded[slots] * fade + outcome.accepted
        self._seen[slots] = self._seen[slots] * fade + seen

    def forget(self, slots: IntArray) -> None:
        """Reset the history of these slots."""
        for array in (self._succeeded, self._seen, self._signal):
            array.reset(slots)

    def _remember_signal(self, context: StepContext) -> None:
        """Keep this step's signals for the next step: these drafts are not verified yet."""
        signal = self._signal[context.slots]
        if context.confidence is not None:
            top = np.clip(context.confidence, 1e-3, 1.0 - 1e-3)
            signal[:, 0] = _mean(np.log(top / (1.0 - top))) / 4.0
        if context.entropy is not None:
            signal[:, 1] = _mean(np.minimum(context.entropy, 6.0)) / 3.0
        self._signal[context.slots] = signal


def _mean(values: FloatArray) -> FloatArray:
    """Return [B] means over positions, without nan; 0 where all are unknown."""
    known = ~np.isnan(values)
    mean: FloatArray = np.sum(values, axis=1, where=known) / np.maximum(known.sum(axis=1), 1)
    return mean


def _task_bin(task: IntArray) -> IntArray:
    """Return [B] bin 0 without a label, 1..TASK_BINS - 1 by a hash of the label's number."""
    labels, place = np.unique(task, return_inverse=True)
    bins = [
        0 if label < 0 else 1 + zlib.crc32(str(label).encode()) % (TASK_BINS - 1)
        for label in labels.tolist()
    ]
    return np.array(bins, dtype=np.int64)[place]
