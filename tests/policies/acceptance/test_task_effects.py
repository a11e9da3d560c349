"""Task labels tell requests apart from their first step on."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.acceptance.model import AcceptanceModel
from adaptive_spec.policies.acceptance.task_effects import TaskEffects


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
