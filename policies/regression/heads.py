"""Evaluation of a hazard head for a whole batch, in numpy: [Kmax, B] logits."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from adaptive_spec.policies.regression.features import DRAFT_FEATURES
from adaptive_spec.policies.regression.model_file import BoostingHead, Feature, Head, LogisticHead
from adaptive_spec.step import BoolArray, FloatArray, IntArray

Columns = dict[str, FloatArray]
"""Features by name: [B], or [Kmax, B] if they differ by position. nan means unknown."""


class Evaluator(Protocol):
    """A head ready for evaluation."""

    def logits(self, columns: Columns, batch: int) -> FloatArray:
        """Return [Kmax, B] logits for these features; a missing feature is unknown."""
        ...


def evaluator(head: Head, kmax: int) -> Evaluator:
    """Build the head's evaluator; positions beyond the fitted ones use the last one."""
    if isinstance(head, LogisticHead):
        return _Logistic(head, kmax)
    return _Boosting(head, kmax)


def _scaled(feature: Feature, values: FloatArray) -> FloatArray:
    scaled: FloatArray = np.minimum(np.maximum(values, feature.low), feature.high)
    scaled -= feature.mean
    scaled /= feature.scale
    unknown = np.isnan(scaled)
    if unknown.any():
        scaled[unknown] = 0.0
    return scaled


class _Logistic:
    def __init__(self, head: LogisticHead, kmax: int) -> None:
        self._head = head
        position = np.minimum(np.arange(kmax), len(head.intercepts) - 1)
        self._intercepts: FloatArray = np.array(head.intercepts)[position]
        self._weights: list[FloatArray] = [
            weight + slope * position
            for weight, slope in zip(head.weights, head.slopes, strict=True)
        ]

    def logits(self, columns: Columns, batch: int) -> FloatArray:
        result: FloatArray = np.repeat(self._intercepts[:, None], batch, axis=1)
        for feature, weights in zip(self._head.features, self._weights, strict=True):
            values = columns.get(feature.name)
            if values is not None:
                result += weights[:, None] * _scaled(feature, values)
        return result


class _Boosting:
    """Boosted trees: compares all nodes of all trees at once, then selects the leaves."""

    def __init__(self, head: BoostingHead, kmax: int) -> None:
        self._head = head
        self._kmax = kmax
        trees, leaves = len(head.leaf), 2**head.depth
        # Order by node, so that the same node of all trees is contiguous: [nodes * T].
        feature = np.array(head.node_feature, dtype=np.int64).T.ravel()
        threshold = np.array(head.threshold, dtype=np.float32).T.ravel()
        names = [each.name for each in head.features]
        by_position = np.array([False, *(name in DRAFT_FEATURES for name in names)])[feature + 1]
        at_position = feature < 0
        by_position |= at_position
        # Comparisons that do not depend on the position run once for all positions.
        self._of_request = np.flatnonzero(~by_position)
        self._request_rows = feature[self._of_request]
        self._request_thresholds = threshold[self._of_request, None]
        self._of_draft = np.flatnonzero(by_position & ~at_position)
        self._draft_rows = feature[self._of_draft]
        self._draft_thresholds = threshold[self._of_draft, None, None]
        self._nodes = len(feature)
        self._at_position = np.flatnonzero(at_position)
        position = np.arange(kmax, dtype=np.float32)
        self._position_turns = (position > threshold[self._at_position, None])[:, :, None]
        self._leaves = np.array(head.leaf, dtype=np.float32).ravel()
        self._first_leaf: IntArray = (leaves * np.arange(trees, dtype=np.int64))[:, None]

    def logits(self, columns: Columns, batch: int) -> FloatArray:
        head, kmax = self._head, self._kmax
        count = len(head.features)
        of_request = np.zeros((count, batch), dtype=np.float32)
        of_draft = np.zeros((count, kmax, batch), dtype=np.float32)
        for row, feature in enumerate(head.features):
            values = columns.get(feature.name)
            if values is None:
                continue
            if feature.name in DRAFT_FEATURES:
                of_draft[row] = _scaled(feature, values)
            else:
                of_request[row] = _scaled(feature, values)
        turns = np.empty((self._nodes, kmax, batch), dtype=np.bool_)
        turns[self._at_position] = self._position_turns
        turns[self._of_request] = (of_request[self._request_rows] > self._request_thresholds)[
            :, None, :
        ]
        turns[self._of_draft] = of_draft[self._draft_rows] > self._draft_thresholds
        right = turns.reshape(2**head.depth - 1, -1, kmax * batch)
        place = self._first_leaf
        taken: list[BoolArray] = []
        for level in range(head.depth):
            taken.append(_chosen(right[2**level - 1 : 2 ** (level + 1) - 1], taken))
            place = place + (taken[-1].astype(np.int64) << (head.depth - 1 - level))
        total = self._leaves[place].sum(axis=0, dtype=np.float64)
        result: FloatArray = (head.base + total).reshape(kmax, batch)
        return result


def _chosen(nodes: BoolArray, turns: list[BoolArray]) -> BoolArray:
    """Return the outcome [T, N] at the node reached by these turns, of [2^len(turns), T, N]."""
    for turn in reversed(turns):
        left, right = nodes[0::2], nodes[1::2]
        nodes = (right & turn) | (left & ~turn)
    chosen: BoolArray = nodes[0]
    return chosen
