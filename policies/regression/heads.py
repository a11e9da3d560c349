"""Evaluation of a hazard head for a whole batch, in numpy: [Kmax, B] logits."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.regression.model_file import Feature, LogisticHead
from adaptive_spec.step import FloatArray

Columns = dict[str, FloatArray]
"""Features by name: [B], or [Kmax, B] if they differ by position. nan means unknown."""


class HeadEvaluator:
    """A head ready for evaluation; positions beyond the fitted ones use the last one."""

    def __init__(self, head: LogisticHead, kmax: int) -> None:
        self._head = head
        position = np.minimum(np.arange(kmax), len(head.intercepts) - 1)
        self._intercepts: FloatArray = np.array(head.intercepts)[position]
        self._weights: list[FloatArray] = [
            weight + slope * position
            for weight, slope in zip(head.weights, head.slopes, strict=True)
        ]

    def logits(self, columns: Columns, batch: int) -> FloatArray:
        """Return [Kmax, B] logits for these features; a missing feature is unknown."""
        result: FloatArray = np.repeat(self._intercepts[:, None], batch, axis=1)
        for feature, weights in zip(self._head.features, self._weights, strict=True):
            values = columns.get(feature.name)
            if values is not None:
                result += weights[:, None] * _scaled(feature, values)
        return result


def _scaled(feature: Feature, values: FloatArray) -> FloatArray:
    """Return the clipped and scaled feature; 0 for an unknown value."""
    scaled: FloatArray = np.minimum(np.maximum(values, feature.low), feature.high)
    scaled -= feature.mean
    scaled /= feature.scale
    unknown = np.isnan(scaled)
    if unknown.any():
        scaled[unknown] = 0.0
    return scaled
