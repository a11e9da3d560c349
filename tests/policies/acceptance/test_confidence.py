"""Confidence counts for as much as it has been seen to tell, and for nothing otherwise."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.acceptance.confidence import ConfidenceEffect, log_odds
from adaptive_spec.policies.acceptance.hazard_model import survival_of
from adaptive_spec.policies.acceptance.model import AcceptanceModel

BATCH, KMAX = 32, 4
SLOTS = np.arange(BATCH)


def feed(
    model: AcceptanceModel, steps: int, *, slope: float, centre: float = 0.8, seed: int = 0
) -> None:
    """Drafts whose true hazard is logistic(slope * logit(shown) + (1 - slope) * centre)."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        shown = centre + 1.5 * random.standard_normal((BATCH, KMAX))
        truth = 1.0 / (1.0 + np.exp(-(slope * shown + (1.0 - slope) * centre)))
        hits = random.random((BATCH, KMAX)) < truth
        verified = random.integers(0, KMAX + 1, BATCH)
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), verified)
        signal = model.confidence.signal(1.0 / (1.0 + np.exp(-shown)))
        model.confidence.see(signal)
        model.learn_outcomes(SLOTS, verified, accepted, signal=signal)


def at(model: AcceptanceModel, probability: float) -> float:
    """Hazard of the first position when the drafter shows this."""
    signal = model.confidence.signal(np.full((BATCH, KMAX), probability))
    return float(given(model, signal)[0].mean())


def given(model: AcceptanceModel, signal: np.ndarray) -> np.ndarray:
    """Hazards [Kmax, B] given this signal."""
    return model.hazard_given(signal, model.hazard(SLOTS), SLOTS)


@pytest.mark.parametrize("slope", [0.5, 1.0, 1.5])
def test_the_weight_of_a_telling_signal_is_found(slope: float) -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 600, slope=slope)
    assert model.confidence.weight == pytest.approx(np.full(KMAX, slope), abs=0.25)
    assert at(model, 0.95) > at(model, 0.4) + 0.15


def test_a_signal_that_tells_nothing_changes_next_to_nothing() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 600, slope=0.0)
    assert at(model, 0.95) == pytest.approx(at(model, 0.4), abs=0.05)


def test_a_signal_that_points_the_wrong_way_is_not_used() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 300, slope=-1.0)
    assert (model.confidence.weight == 0.0).all()
    assert not model.informative
    assert at(model, 0.95) == at(model, 0.4), "history, to the last bit"


def test_a_signal_that_stops_telling_anything_loses_its_weight() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 400, slope=1.0)
    before = at(model, 0.95) - at(model, 0.4)
    feed(model, 400, slope=0.0, seed=1)
    assert at(model, 0.95) - at(model, 0.4) < 0.2 * before


def test_a_signal_is_used_after_a_few_hundred_drafts_and_not_before() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 2, slope=1.0)
    assert not model.informative
    feed(model, 8, slope=1.0, seed=1)
    assert model.informative


def test_without_a_signal_the_mean_over_what_it_may_show_is_predicted() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 800, slope=1.0)
    shown = 0.8 + 1.5 * np.random.default_rng(1).standard_normal(100_000)
    mean = float(np.mean(1.0 / (1.0 + np.exp(-shown))))
    assert model.hazard(SLOTS).mean(axis=1) == pytest.approx(np.full(KMAX, mean), abs=0.04)


def test_an_unknown_position_is_predicted_without_signal() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 300, slope=1.0)
    confidence = np.full((BATCH, KMAX), 0.99)
    confidence[:, 2:] = np.nan
    hazard = given(model, model.confidence.signal(confidence))
    assert (hazard[2:] == model.hazard(SLOTS)[2:]).all()
    assert (hazard[:2] > model.hazard(SLOTS)[:2]).all()


def test_a_position_that_nothing_reaches_has_the_weight_of_the_others() -> None:
    model = AcceptanceModel(KMAX)
    random = np.random.default_rng(0)
    for _ in range(400):
        shown = 1.5 * random.standard_normal((BATCH, KMAX))
        accepted = (random.random(BATCH) < 1.0 / (1.0 + np.exp(-shown[:, 0]))).astype(np.int64)
        signal = model.confidence.signal(1.0 / (1.0 + np.exp(-shown)))
        model.confidence.see(signal)
        model.learn_outcomes(SLOTS, np.ones(BATCH, dtype=np.int64), accepted, signal=signal)
    weight = model.confidence.weight
    assert weight[1:] == pytest.approx(weight[0], abs=0.1)


def test_the_state_is_json_and_restores() -> None:
    model = AcceptanceModel(KMAX)
    feed(model, 100, slope=1.0)
    state = json.loads(json.dumps(model.state(), allow_nan=False))
    fresh = AcceptanceModel(KMAX)
    fresh.restore(state)
    assert fresh.confidence.weight == pytest.approx(model.confidence.weight)
    assert fresh.informative


@pytest.mark.parametrize(
    "state", [{}, {"own": [0.0]}, dict.fromkeys(("own", "mean", "variance"), [0.0] * KMAX)]
)
def test_a_state_that_does_not_fit_is_refused(state: dict[str, list[float]]) -> None:
    with pytest.raises(PolicyError, match="confidence state"):
        ConfidenceEffect(KMAX).restore(state)


def test_log_odds_stay_finite_and_keep_what_is_unknown() -> None:
    found = log_odds(np.array([0.0, 0.5, 1.0, np.nan]))
    assert np.isfinite(found[:3]).all()
    assert found[1] == 0.0
    assert np.isnan(found[3])


@pytest.mark.parametrize("label", [None, 1])
def test_history_is_not_learned_from_what_confidence_has_picked_alone(label: int | None) -> None:
    """What is planned beforehand is of all drafts; verified are those the drafter was sure of."""
    model, random = AcceptanceModel(KMAX), np.random.default_rng(0)
    task = None if label is None else np.full(BATCH, label)
    planned, true = [], []
    for step in range(600):
        shown = 0.5 + 2.0 * random.standard_normal((BATCH, KMAX))
        truth = 1.0 / (1.0 + np.exp(-shown))
        hits = random.random((BATCH, KMAX)) < truth
        signal = model.confidence.signal(truth)
        by_history = model.hazard(SLOTS, task)
        survival = survival_of(model.hazard_given(signal, by_history, SLOTS, task))
        verified = (survival >= 0.5).sum(axis=0) if model.informative else np.full(BATCH, KMAX)
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), verified)
        if step >= 300:
            planned.append(model.hazard(SLOTS, task).mean(axis=1))
            true.append(truth.mean())
        model.confidence.see(signal)
        model.learn_outcomes(SLOTS, verified, accepted, task, signal)
    assert model.informative
    assert np.mean(planned, axis=0) == pytest.approx(np.full(KMAX, np.mean(true)), abs=0.1)
    assert np.abs(model.history.position_effect).max() < 5.0


def test_a_weight_grows_only_where_the_signal_was_right() -> None:
    effect = ConfidenceEffect(2)
    signal = np.array([[1.0, np.nan], [np.nan, np.nan]])
    effect.learn_weights(signal, np.full((2, 2), 0.5), np.array([2, 2]), np.array([1, 2]))
    state = effect.state()
    assert state["own"] == [pytest.approx(0.5 / 4.25), 0.0]
    assert state["evidence"] == [0.25, 0.0]


def test_positions_without_evidence_take_the_weight_of_the_others() -> None:
    effect = ConfidenceEffect(2)
    saved = {"own": [2.0, 0.0], "evidence": [1e9, 0.0], "mean": [0.0, 0.0], "count": [0.0, 0.0]}
    effect.restore({**saved, "observed": 1})
    assert effect.weight == pytest.approx(np.array([2.0, 2.0]))


def test_means_follow_the_known_values() -> None:
    effect = ConfidenceEffect(2)
    effect.see(np.array([[1.0, 3.0, np.nan], [np.nan] * 3]))
    assert effect.mean.tolist() == [2.0, 0.0]
    assert effect.state()["count"] == [2.0, 0.0]
