"""Task labels tell requests apart from their first step on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.acceptance.model import AcceptanceModel
from adaptive_spec.policies.acceptance.task_effects import TaskEffects, learn


def test_a_task_label_tells_new_requests_apart() -> None:
    task = np.repeat(np.array([0, 1]), 8)
    hazard = np.where(task == 0, 0.9, 0.3)
    model, random = AcceptanceModel(3), np.random.default_rng(0)
    slots, k = np.arange(len(task)), np.full(len(task), 3)
    for _ in range(300):
        hits = random.random((len(task), 3)) < hazard[:, None]
        model.learn(slots, k, np.minimum(hits.cumprod(axis=1).sum(axis=1), k), task)
    model.forget(slots)
    fresh = model.hazard(np.array([0, 1, 2]), np.array([0, 1, -1]))[0]
    assert fresh[0] > fresh[2] > fresh[1]
    assert fresh[0] - fresh[1] > 0.25


@pytest.mark.usefixtures("needs_numba")
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 40), most=st.sampled_from([3, 5000]))
def test_both_forms_return_the_same_bits(seed: int, batch: int, most: int) -> None:
    random = np.random.default_rng(seed)
    task = random.integers(-1, most, batch)
    sums = random.normal(size=batch), random.random(batch)
    found = []
    for form in (learn.reference, learn.compile()):
        arrays = np.full(1024, -1), np.zeros(1024), np.zeros(1024)
        for labels in (task, task[::-1].copy(), task):
            form(labels, *sums, *arrays)
        found.append(b"".join(each.tobytes() for each in arrays))
    assert found[0] == found[1]


def test_labels_without_end_do_not_grow_the_model() -> None:
    effects, one = TaskEffects(), np.array([1.0])
    for number in range(0, 100_000, 997):
        effects.learn(np.array([number]), one, one)
    assert len(effects) <= 1024


def test_the_latest_label_has_an_effect_however_many_came_before() -> None:
    effects, one = TaskEffects(), np.array([1.0])
    for number in range(5000):
        effects.learn(np.array([number]), one, one)
    newest, oldest, none = effects.of(np.array([4999, 0, -1]))
    assert newest > 0
    assert oldest == none == 0.0
    effects.learn(np.array([4999 + 1024]), one, one)
    assert effects.of(np.array([4999 + 1024])) == newest, "a new label starts without the old one's"
