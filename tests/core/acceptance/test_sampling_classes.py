"""Greedy and sampled targets are told apart, and a server of one kind pays nothing for it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from adaptive_spec.acceptance.model import AcceptanceModel
from adaptive_spec.acceptance.sampling_classes import SamplingClasses
from adaptive_spec.errors import PolicyError

BATCH, KMAX = 32, 3
SLOTS = np.arange(BATCH)
SAMPLED = np.arange(BATCH) % 2 == 1
TEMPERATURE = np.where(SAMPLED, 0.8, 0.0)


def feed(model: AcceptanceModel, steps: int, *, told: bool = True, signal: bool = True) -> None:
    """Sampled: accepted as often as the drafter says. Greedy: far more often, whatever it says."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        shown = 1.5 * random.standard_normal((BATCH, KMAX))
        slope, base = np.where(SAMPLED, 1.0, 0.3), np.where(SAMPLED, 0.0, 1.5)
        truth = 1.0 / (1.0 + np.exp(-(slope[:, None] * shown + base[:, None])))
        hits = random.random((BATCH, KMAX)) < truth
        verified = random.integers(1, KMAX + 1, BATCH)
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), verified)
        if told:
            model.classes.see(SLOTS, TEMPERATURE)
        z: Any = None
        if signal:
            z = model.signal(SLOTS, 1.0 / (1.0 + np.exp(-shown)))
            model.see(SLOTS, z)
        model.learn(SLOTS, verified, accepted, signal=z)


def assert_classes(classes: SamplingClasses, slots: Any, expected: Any) -> None:
    found = classes.of(slots)
    assert isinstance(found, np.ndarray)
    assert (found == expected).all()


def test_each_class_has_its_own_weight_of_the_signal() -> None:
    model = AcceptanceModel(KMAX, request_effects=False)
    feed(model, 500)
    greedy, sampled = model.confidence.weight.mean(axis=0)
    assert greedy == pytest.approx(0.3, abs=0.12)
    assert sampled == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("signal", [True, False])
def test_a_new_request_has_the_hazard_of_its_class(signal: bool) -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 300, signal=signal)
    model.forget(SLOTS)
    model.classes.see(SLOTS, TEMPERATURE)
    first = model.hazard(SLOTS)[0]
    assert first[~SAMPLED].mean() == pytest.approx(0.81, abs=0.05)
    assert first[SAMPLED].mean() == pytest.approx(0.5, abs=0.06)


def test_predictions_are_better_calibrated_when_the_temperature_is_known() -> None:
    error = {}
    for told in (True, False):
        model = AcceptanceModel(KMAX, request_effects=False)
        feed(model, 500, told=told)
        shown = np.full((BATCH, KMAX), 0.2)
        hazard = model.hazard(SLOTS, signal=model.signal(SLOTS, shown))[0]
        truth = np.where(SAMPLED, 0.2, 1.0 / (1.0 + np.exp(-(0.3 * np.log(0.25) + 1.5))))
        error[told] = float(np.abs(hazard - truth).mean())
    assert error[True] < 0.05
    assert error[False] > 0.15


def test_alike_requests_are_not_looked_up_one_by_one() -> None:
    classes = SamplingClasses()
    for _ in range(3):
        classes.see(SLOTS, np.full(BATCH, 0.7))
    assert not classes.mixed
    assert classes.of(SLOTS) == slice(1, 2)
    classes.see(SLOTS, TEMPERATURE)
    assert_classes(classes, SLOTS, SAMPLED)


def test_requests_without_a_step_count_as_most_others_do() -> None:
    classes = SamplingClasses()
    classes.see(np.array([0]), np.array([0.0]))
    classes.see(np.array([0, 1, 2]), np.array([0.0, 1.0, 1.0]))
    assert_classes(classes, np.array([0, 1, 900]), np.array([0, 1, 1]))
    classes.forget(np.array([0]))
    assert_classes(classes, np.array([0, 1]), np.array([1, 1]))


def test_a_saved_state_goes_on_and_one_without_classes_counts_for_both() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 200)
    state = json.loads(json.dumps(model.state(), allow_nan=False))
    fresh = AcceptanceModel(KMAX)
    fresh.restore(state)
    model.forget(SLOTS)
    for each in (model, fresh):
        each.classes.see(SLOTS, TEMPERATURE)
    assert (fresh.hazard(SLOTS) == model.hazard(SLOTS)).all()
    del state["sampling"], state["drafts"], state["gain"], state["earlier"]
    for name, rows in state["confidence"].items():
        state["confidence"][name] = rows[1]
    older = AcceptanceModel(KMAX)
    older.restore(state)
    assert (older.confidence.weight[:, 0] == older.confidence.weight[:, 1]).all()
    assert not older.informative, "not proven yet"


def test_a_restored_server_of_one_class_begins_with_the_hazards_of_that_class() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 300)
    for temperature, hazard in ((0.0, 0.81), (0.8, 0.5)):
        alike = AcceptanceModel(KMAX)
        alike.restore(model.state())
        alike.classes.see(SLOTS, np.full(BATCH, temperature))
        assert not alike.classes.mixed
        assert alike.hazard(SLOTS)[0] == pytest.approx(np.full(BATCH, hazard), abs=0.06)


@pytest.mark.parametrize(
    "damage", [{"offset": [1.0]}, {"offset": [0.0, float("nan")]}, {"evidence": "x"}, 3]
)
def test_a_state_that_does_not_fit_is_refused(damage: Any) -> None:
    model = AcceptanceModel(KMAX)
    state = model.state()
    state["sampling"] = {**state["sampling"], **damage} if isinstance(damage, dict) else damage
    with pytest.raises(PolicyError, match="sampling classes"):
        model.restore(state)
