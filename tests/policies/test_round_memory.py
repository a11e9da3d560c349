"""Signals are found again beside their outcome; rows per slot are reset with it."""

from __future__ import annotations

import numpy as np
from adaptive_spec.policies.round_memory import RoundMemory

from adaptive_spec.per_request import floats, integers
from tests.policies.baselines.peer_support import outcome


def test_signals_come_back_for_the_requests_of_the_outcome_in_its_order() -> None:
    memory = RoundMemory()
    memory.remember(3, np.array([5, 2, 9]), np.array([[0.5], [0.2], [0.9]]))
    late = outcome([1, 1, 1], [0, 0, 0], step=3, slots=np.array([9, 7, 5]))
    found = memory.recall(late)
    assert found is not None
    assert found.rows.tolist() == [0, 2]  # slot 7 was not in the plan
    assert found.signals[0].tolist() == [[0.9], [0.5]]


def test_each_step_is_recalled_once_and_others_are_not_mixed_up() -> None:
    memory = RoundMemory()
    for step in range(3):
        memory.remember(step, np.array([0]), np.array([float(step)]))
    first = memory.recall(outcome([1], [0], step=1))
    assert first is not None
    assert first.signals[0].tolist() == [1.0]
    assert memory.recall(outcome([1], [0], step=1)) is None
    assert memory.recall(outcome([1], [0], step=0)) is None
    second = memory.recall(outcome([1], [0], step=2))
    assert second is not None
    assert second.signals[0].tolist() == [2.0]


def test_outcomes_that_never_come_leave_nothing_behind() -> None:
    memory = RoundMemory()
    for step in range(1000):
        memory.remember(step, np.array([0]), np.array([float(step)]))
    assert len(memory._steps) <= 8


def test_rows_begin_at_their_fill_grow_and_are_reset() -> None:
    array = floats(1.0, 2)
    slots = np.array([3, 500])
    assert array[slots].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    array[slots] = np.array([[2.0, 3.0], [4.0, 5.0]])
    array.reset(np.array([3]))
    assert array[slots].tolist() == [[1.0, 1.0], [4.0, 5.0]]
    counts = integers(0)
    counts[np.array([2])] += 7
    assert counts[np.array([1, 2])].tolist() == [0, 7]
    counts.reset(np.zeros(0, dtype=np.int64))
    assert counts[np.zeros(0, dtype=np.int64)].tolist() == []
