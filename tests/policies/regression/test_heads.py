"""Heads evaluated in numpy give what their definition gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.regression.heads import evaluator
from adaptive_spec.policies.regression.model_file import BoostingHead, LogisticHead
from tests.policies.regression.fake_models import feature


def scaled(head: Any, number: int, value: float) -> float:
    found = head.features[number]
    if np.isnan(value):
        return 0.0
    return float((min(max(value, found.low), found.high) - found.mean) / found.scale)


def walked(head: BoostingHead, position: int, values: list[float]) -> float:
    """Down each tree, one node at a time."""
    inputs = [float(position), *(scaled(head, n, v) for n, v in enumerate(values))]
    total = head.base
    for features, thresholds, leaves in zip(
        head.node_feature, head.threshold, head.leaf, strict=True
    ):
        node = 0
        while node < len(features):
            right = inputs[features[node] + 1] > thresholds[node]
            node = 2 * node + 1 + int(right)
        total += leaves[node - len(features)]
    return total


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_trees_give_what_walking_down_them_gives(data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, 4))
    trees = data.draw(st.integers(1, 5))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    inner = 2**depth - 1
    head = BoostingHead(
        features=[feature("history"), feature("confidence")],
        base=0.3,
        depth=depth,
        node_feature=random.integers(-1, 2, (trees, inner)).tolist(),
        threshold=np.float32(random.normal(size=(trees, inner))).tolist(),
        leaf=np.float32(random.normal(size=(trees, inner + 1))).tolist(),
    )
    history, confidence = random.normal(size=7) * 3, random.normal(size=(5, 7)) * 3
    history[2] = confidence[1, 3] = np.nan
    logits = evaluator(head, 5).logits({"history": history, "confidence": confidence}, 7)
    for position in range(5):
        for request in range(7):
            expected = walked(head, position, [history[request], confidence[position, request]])
            assert logits[position, request] == pytest.approx(expected, abs=1e-5)


def test_the_logistic_head_is_its_formula_and_deeper_positions_count_as_the_last() -> None:
    head = LogisticHead(
        features=[feature("history"), feature("confidence")],
        intercepts=[0.1, -0.4, 0.3],
        weights=[0.7, 1.2],
        slopes=[0.1, -0.2],
    )
    history = np.array([0.2, 9.0, np.nan])
    confidence = np.random.default_rng(0).normal(size=(5, 3))
    logits = evaluator(head, 5).logits({"history": history, "confidence": confidence}, 3)
    for j in range(5):
        for i in range(3):
            at = min(j, 2)
            expected = head.intercepts[at]
            expected += (0.7 + 0.1 * at) * scaled(head, 0, history[i])
            expected += (1.2 - 0.2 * at) * scaled(head, 1, confidence[j, i])
            assert logits[j, i] == pytest.approx(expected)
