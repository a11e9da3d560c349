"""Heads evaluated in numpy give what their definition gives."""

from typing import Any

import numpy as np
import pytest

from adaptive_spec.policies.regression.model_file import HeadEvaluator, LogisticHead
from tests.policies.regression.fake_models import feature


def scaled(head: Any, number: int, value: float) -> float:
    found = head.features[number]
    if np.isnan(value):
        return 0.0
    return float((min(max(value, found.low), found.high) - found.mean) / found.scale)


def test_the_logistic_head_is_its_formula() -> None:
    head = LogisticHead(
        features=[feature("history"), feature("confidence")],
        intercepts=[0.1, -0.4, 0.3],
        weights=[0.7, 1.2],
        slopes=[0.1, -0.2],
    )
    history = np.array([0.2, 9.0, np.nan])
    confidence = np.random.default_rng(0).normal(size=(5, 3))
    logits = HeadEvaluator(head, 5).logits({"history": history, "confidence": confidence}, 3)
    for j in range(5):
        for i in range(3):
            at = min(j, 2)
            expected = head.intercepts[at]
            expected += (0.7 + 0.1 * at) * scaled(head, 0, history[i])
            expected += (1.2 - 0.2 * at) * scaled(head, 1, confidence[j, i])
            assert logits[j, i] == pytest.approx(expected)
