"""Requests that fall behind the latency they asked for count for more."""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.policies.planning.tpot_weights import LatencyWeights
from tests.core.controller.answers import context


def test_only_requests_behind_their_target_gain_weight() -> None:
    weights = LatencyWeights(strength=1.0)
    targets = np.array([0.1, 0.01, np.inf])
    start = context(0, now=10.0, tpot_target=targets)
    assert weights.weights(start).tolist() == [1.0, 1.0, 1.0]
    weights.emitted(start.slots, np.array([20, 20, 20]))
    later = msgspec.structs.replace(start, now=11.0)  # 50 ms a token
    on_time, behind, without = weights.weights(later)
    assert on_time == without == 1.0
    assert behind == 5.0  # bounded
    weights.forget(np.array([1]))
    assert weights.weights(later)[1] == 1.0


def test_without_targets_nothing_is_kept() -> None:
    weights = LatencyWeights(strength=1.0)
    assert weights.weights(context(0)) is None
