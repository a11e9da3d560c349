"""Task labels tell requests apart from their first step on."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policies.acceptance.hazard_model import HazardModel, TaskEffects
from adaptive_spec.policies.acceptance.label_outliers import LabelOutliers
from adaptive_spec.policies.acceptance.model import AcceptanceModel


def test_a_task_label_tells_new_requests_apart() -> None:
    task = np.repeat(np.array([0, 1]), 8)
    hazard = np.where(task == 0, 0.9, 0.3)
    model, random = AcceptanceModel(3), np.random.default_rng(0)
    slots, k = np.arange(len(task)), np.full(len(task), 3)
    for _ in range(300):
        hits = random.random((len(task), 3)) < hazard[:, None]
        model.learn_outcomes(slots, k, np.minimum(hits.cumprod(axis=1).sum(axis=1), k), task)
    model.forget(slots)
    fresh = model.hazard(np.array([0, 1, 2]), np.array([0, 1, -1]))[0]
    assert fresh[0] > fresh[2] > fresh[1]
    assert fresh[0] - fresh[1] > 0.25


def test_labels_without_end_do_not_grow_the_model() -> None:
    effects, one = TaskEffects(), np.array([1.0])
    for number in range(0, 100_000, 997):
        effects.add_outcomes(np.array([number]), one, one)
    assert len(effects) <= 1024


def test_the_latest_label_has_an_effect_however_many_came_before() -> None:
    effects, one = TaskEffects(), np.array([1.0])
    for number in range(5000):
        effects.add_outcomes(np.array([number]), one, one)
    newest, oldest, none = effects.of(np.array([4999, 0, -1]))
    assert newest > 0
    assert oldest == none == 0.0
    effects.add_outcomes(np.array([4999 + 1024]), one, one)
    assert effects.of(np.array([4999 + 1024])) == newest, "a new label starts without the old one's"


def taught(share: float, *, clients_label: bool = True, length: int = 40) -> float:
    """Hazard of a new request with a label of which this share of requests is always wrong."""
    model = HazardModel(3, 0.67, clients_label=clients_label)
    random, slots = np.random.default_rng(1), np.arange(11)
    task, k = np.zeros(11, dtype=np.int64), np.full(11, 3)
    truth = np.where(slots < round(share * 11), 0.0, 0.8)
    for step in range(600):
        hits = random.random((11, 3)) < truth[:, None]
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), k)
        model.learn_outcomes(model.hazard(slots, task), slots, k, accepted, task)
        ended = slots[(step + slots * 7) % length == 0]
        model.forget(ended)
    return float(model.hazard(np.array([50]), np.array([0]))[0, 0])


@pytest.mark.parametrize("share", [0.1, 0.2, 0.37])
def test_a_minority_cannot_poison_a_shared_label(share: float) -> None:
    assert taught(share) > 0.66
    assert taught(share) - taught(share, clients_label=False) > 0.3 * share


def test_a_label_of_which_all_are_wrong_is_known_for_it() -> None:
    assert taught(1.0) < 0.05
    assert taught(0.8) < 0.3


def test_what_a_request_taught_ends_with_it() -> None:
    outliers, one = LabelOutliers(2), np.ones(4)
    task, slots = np.zeros(4, dtype=np.int64), np.arange(4)
    strange = np.array([-9.0, 0.0, 0.0, 0.0])
    lesson = np.stack([strange, strange])
    taken = outliers.correction(task, slots, strange, one, lesson)
    assert (taken[:, 0] > 0.0).all()
    assert not taken[:, 1:].any()
    outliers.forget(np.array([0]))
    nothing = np.zeros(4)
    assert not outliers.correction(task, slots, nothing, nothing, 0.0 * lesson).any()
