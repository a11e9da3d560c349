"""How fast a request's own acceptance changes is learned; who is not tried is tried again."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.acceptance.learn_kernel import learn
from adaptive_spec.acceptance.model import AcceptanceModel
from adaptive_spec.acceptance.request_effects import EffectAverage, RequestEffects

_BATCH, _K = 16, 4
_EASY, _HARD = 0.95, 0.08


def feed(model: AcceptanceModel, steps: int, stay: float, seed: int = 0) -> float:
    """Requests that are easy or hard, and stay so from step to step with this probability.

    One ends every fourth step and another begins. Returns by how much the first hazards expected of
    easy and of hard requests differ, on average over the last hundred steps.
    """
    random = np.random.default_rng(seed)
    slots = np.arange(_BATCH)
    verified = np.full(_BATCH, _K)
    easy = random.random(_BATCH) < 0.5
    apart = []
    for step in range(steps):
        if step % 4 == 0:
            ended = slots[[step // 4 % _BATCH]]
            model.forget(ended)
            easy[ended] = random.random() < 0.5
        if steps - step <= 100 and easy.any() and not easy.all():
            first = model.hazard(slots)[0]
            apart.append(first[easy].mean() - first[~easy].mean())
        hits = random.random((_BATCH, _K)) < np.where(easy, _EASY, _HARD)[:, None]
        model.learn(slots, verified, hits.cumprod(axis=1).sum(axis=1))
        easy = np.where(random.random(_BATCH) < stay, easy, ~easy)
    return float(np.mean(apart))


def test_the_quick_average_leads_where_requests_change_within_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, slow = AcceptanceModel(_K), AcceptanceModel(_K)
    monkeypatch.setattr(slow.effects, "_score", lambda better: None)
    apart = feed(model, 600, stay=0.85)
    assert model.effects.leading is model.effects.quick
    assert apart > feed(slow, 600, stay=0.85) + 0.05


@pytest.mark.parametrize("seed", range(5))
def test_the_slow_average_leads_where_requests_stay_as_they_are(seed: int) -> None:
    model = AcceptanceModel(_K)
    feed(model, 600, stay=1.0, seed=seed)
    assert model.effects.leading is model.effects.slow


@pytest.mark.parametrize("seed", range(5))
def test_the_slow_average_leads_where_all_requests_are_alike(seed: int) -> None:
    random = np.random.default_rng(seed)
    model = AcceptanceModel(_K)
    for _ in range(600):
        hits = random.random((_BATCH, _K)) < 0.6
        accepted = hits.cumprod(axis=1).sum(axis=1)
        model.learn(np.arange(_BATCH), np.full(_BATCH, _K), accepted)
    assert model.effects.leading is model.effects.slow


def test_the_slow_average_leads_again_once_requests_have_settled() -> None:
    model = AcceptanceModel(_K)
    feed(model, 600, stay=0.85)
    assert model.effects.leading is model.effects.quick
    feed(model, 3000, stay=1.0, seed=1)
    assert model.effects.leading is model.effects.slow


def test_following_changes_nothing_while_the_slow_average_leads() -> None:
    """u_i and hazards are those of the slow average alone, to the last bit."""
    random = np.random.default_rng(3)
    slots = np.arange(_BATCH)
    alone, both = EffectAverage(0.98, 0.3), AcceptanceModel(_K)
    for _ in range(200):
        verified = random.integers(0, _K + 1, _BATCH)
        accepted = np.minimum((random.random((_BATCH, _K)) < 0.6).cumprod(1).sum(1), verified)
        hazard = both.hazard(slots)
        effect, information = alone.of(slots), alone.information[slots]
        scratch = np.empty(_K), np.empty(_K), np.zeros(_K, dtype=np.int64)
        learn(hazard, verified, accepted, *scratch, effect, information, 0.3, 0.98)
        alone.effect[slots], alone.information[slots] = effect, information
        both.learn(slots, verified, accepted)
    assert both.effects.leading is both.effects.slow
    assert (both.effects.slow.effect[slots] == alone.effect[slots]).all()


def test_a_request_that_is_not_tried_returns_to_the_mean_in_the_quick_average_only() -> None:
    effects = RequestEffects(0.98, 1.0)
    slots, none = np.arange(2), np.zeros(2, dtype=np.int64)
    for average in (effects.slow, effects.quick):
        average.effect[slots] = -2.0
        average.information[slots] = 0.5
    hazard = np.full((_K, 2), 0.5)
    for _ in range(12):
        effects.follow(hazard, slots, none, none, effects.leading.of(slots))
    assert effects.slow.effect[slots].tolist() == [-2.0, -2.0]
    assert (np.abs(effects.quick.effect[slots]) < 0.2).all()


def test_an_ended_request_leaves_nothing_behind_in_either_average() -> None:
    model = AcceptanceModel(_K)
    feed(model, 50, stay=0.85)
    model.forget(np.arange(_BATCH))
    for average in (model.effects.slow, model.effects.quick):
        assert not average.effect.any()
        assert not average.information.any()


def test_memory_grows_with_slots_and_not_with_steps() -> None:
    model = AcceptanceModel(_K)
    feed(model, 50, stay=0.85)
    sizes = [len(each.effect) for each in (model.effects.slow, model.effects.quick)]
    feed(model, 500, stay=0.85)
    assert [len(each.effect) for each in (model.effects.slow, model.effects.quick)] == sizes
    model.learn(np.array([500]), np.array([2]), np.array([1]))
    assert all(len(each.effect) > 500 for each in (model.effects.slow, model.effects.quick))
