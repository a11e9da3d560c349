"""Requests are told apart by their own acceptance; one that is not tried is tried again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.acceptance.model import AcceptanceModel

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
        model.learn_outcomes(slots, verified, hits.cumprod(axis=1).sum(axis=1))
        easy = np.where(random.random(_BATCH) < stay, easy, ~easy)
    return float(np.mean(apart))


@pytest.mark.parametrize(("stay", "least"), [(1.0, 0.5), (0.85, 0.1)])
def test_requests_that_stay_or_change_within_some_steps_are_told_apart(
    stay: float, least: float
) -> None:
    assert feed(AcceptanceModel(_K), 600, stay=stay) > least


def test_where_all_requests_are_alike_they_are_hardly_told_apart() -> None:
    random = np.random.default_rng(0)
    model, slots = AcceptanceModel(_K), np.arange(_BATCH)
    for step in range(600):
        hits = random.random((_BATCH, _K)) < 0.6
        model.learn_outcomes(slots, np.full(_BATCH, _K), hits.cumprod(axis=1).sum(axis=1))
        if step % 4 == 0:
            model.forget(slots[[step // 4 % _BATCH]])
    assert model.hazard(slots)[0].std() < 0.06


@given(effect=st.floats(0.01, 4.0), information=st.floats(0.0, 5.0))
def test_a_request_that_is_not_tried_returns_to_the_mean(effect: float, information: float) -> None:
    model, slots, none = AcceptanceModel(_K), np.array([3]), np.array([0])
    effects = model.history.effects
    effects.effect[slots], effects.evidence[slots] = effect, information
    before = np.abs(effects.effect[slots][0])
    for step in range(300):
        model.learn_outcomes(slots, none, none)
        now = np.abs(effects.effect[slots][0])
        assert (now <= before).all()
        before = now
        if step == 20:
            assert before[0] <= 0.05 * effect
    assert before.max() <= 0.05 * effect


def test_an_ended_request_leaves_nothing_behind() -> None:
    model, slots = AcceptanceModel(_K), np.arange(_BATCH)
    feed(model, 50, stay=0.85)
    model.forget(slots)
    assert not model.history.effects.effect[slots].any()
    assert not model.history.effects.evidence[slots].any()


def test_a_stream_of_short_requests_leaves_what_is_known_of_long_ones() -> None:
    """A third of the batch ends after five tokens, each time with its first draft wrong."""
    random = np.random.default_rng(0)
    long, short = np.arange(24), np.arange(24, 36)
    slots, verified = np.arange(36), np.full(36, _K)
    model = AcceptanceModel(_K)
    for step in range(1200):
        hits = random.random((36, _K)) < np.where(slots < 24, 0.75, 0.02)[:, None]
        model.learn_outcomes(slots, verified, hits.cumprod(axis=1).sum(axis=1))
        if step % 5 == 4:
            model.forget(short)
        if step % 20 == 0:
            model.forget(long[[step // 20 % 24]])
    expected = model.hazard(long).mean(axis=1)
    assert expected == pytest.approx(np.full(_K, 0.75), abs=0.08)


def test_a_request_whose_second_drafts_fail_is_told_by_its_second_drafts() -> None:
    model, slots, verified = AcceptanceModel(2), np.array([0, 1]), np.array([2, 2])
    for _ in range(400):
        model.learn_outcomes(slots, verified, np.array([1, 2]))
    hazard = model.hazard(slots)
    assert (hazard[0] > 0.8).all()
    assert hazard[1, 0] < 0.3
    assert hazard[1, 1] > 0.7


@pytest.mark.parametrize("verified", [1, _K])
def test_what_some_requests_have_shown_of_a_change_is_expected_of_new_ones(verified: int) -> None:
    model, few, new = AcceptanceModel(_K), np.arange(2), np.array([_BATCH])
    bad = np.arange(_BATCH)
    for _ in range(200):
        model.learn_outcomes(bad, np.full(_BATCH, _K), np.zeros(_BATCH, dtype=np.int64))
    model.forget(bad)
    for _ in range(12):
        model.learn_outcomes(few, np.full(2, verified), np.full(2, verified))
    known, before = model.hazard(few), model.hazard(new)
    model.widen(centre=True)
    after = model.hazard(new)
    assert before[0, 0] < 0.25 < 0.5 < after[0, 0]
    assert (after > before).all()
    assert model.hazard(few) == pytest.approx(known, abs=0.12), "they are as they were"


def test_centring_leaves_effects_of_mean_zero_by_what_is_known() -> None:
    model = AcceptanceModel(_K)
    feed(model, 50, stay=1.0)
    model.widen(centre=True)
    assert model.history.effects.centre() == pytest.approx(0.0, abs=0.2)
