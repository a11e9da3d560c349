"""Fitted hazards follow what the fit does not know: the request, the drafter, the traffic."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policies.regression.features import RequestHistory, learn_history
from adaptive_spec.policies.regression.hazards import FittedHazards
from adaptive_spec.policies.regression.model_file import Feature, LogisticHead, RegressionModel
from tests.policies.regression.fake_models import context, known_model, outcome
from tests.policies.two_forms import agree

# ---------------------------------------------------------------------- history


@pytest.mark.usefixtures("needs_numba")
def test_history_is_learned_alike_in_both_forms() -> None:
    random = np.random.default_rng(0)
    verified = random.integers(0, 7, 30)
    accepted = np.minimum(random.integers(0, 7, 30), verified)
    sums, slots = random.random((40, 5)), random.permutation(40)[:30]
    agree(learn_history, sums, slots, verified, accepted, np.array([0.4, 0.5, 0.7]))
    agree(learn_history, sums, slots, 0 * verified, 0 * accepted, np.array([0.4]))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_history_of_an_average_request_is_near_zero_whatever_its_k(k: int) -> None:
    random = np.random.default_rng(k)
    average = np.array([0.4, 0.5, 0.7, 0.8])
    past = RequestHistory(average)
    slots = np.arange(400, dtype=np.int64)
    verified = np.full(400, k, dtype=np.int64)
    for _ in range(40):
        hits = random.random((400, 4)) < average
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), verified)
        past.add_outcomes(slots, verified, accepted)
    assert abs(float(past.features(slots)[0].mean())) < 0.04


def test_a_request_that_does_better_than_the_others_has_a_higher_history() -> None:
    past = RequestHistory(np.array([0.5, 0.5]))
    slots = np.array([0, 200], dtype=np.int64)  # beyond the rows there are at first
    for _ in range(20):
        past.add_outcomes(slots, np.array([2, 2]), np.array([2, 0]))
    history = past.features(slots)[0]
    assert history[0] > 1.0 > -1.0 > history[1]
    past.forget(slots)
    assert not past.features(slots).any()


def test_steps_without_drafts_are_only_progress() -> None:
    past = RequestHistory(np.array([0.5]))
    slots = np.array([0], dtype=np.int64)
    past.add_outcomes(slots, np.array([1]), np.array([1]))
    before = past.features(slots)
    past.add_outcomes(slots, np.array([0]), np.array([0]))
    after = past.features(slots)
    assert (after[:2] == before[:2]).all()
    assert after[2] > before[2]


# ------------------------------------------------------------------- correction


def fitted(model: RegressionModel, kmax: int = 4) -> FittedHazards:
    return FittedHazards(model, kmax, tasks=[])


def test_a_drafter_unlike_the_fitted_one_is_learned_online() -> None:
    random = np.random.default_rng(0)
    hazards = fitted(known_model())
    for step in range(150):
        now = context(16, 4, step)
        logits = hazards.survival(now).logits
        hits = random.random((16, 4)) < 0.85
        accepted = hits.cumprod(axis=1).sum(axis=1).astype(np.int64)
        hazards.learn_outcomes(outcome(now, np.full(16, 4, dtype=np.int64), accepted), logits)
    survival = hazards.survival(context(16, 4, 999)).stale.mean(axis=1)
    assert survival == pytest.approx(0.85 ** np.arange(1, 5), abs=0.05)


def test_leaving_out_unsure_drafts_does_not_bias_history() -> None:
    """Half of the drafts at each position show .9 and half .1, and both keep their word."""
    random = np.random.default_rng(1)
    hazards = fitted(known_model())
    batch = 64
    for step in range(120):
        shown = np.where(random.random((batch, 4)) < 0.5, 0.9, 0.1)
        now = context(batch, 4, step, confidence=shown)
        logits = hazards.survival(now).logits
        kept = (shown > 0.5).cumprod(axis=1).sum(axis=1).astype(np.int64)
        hits = (random.random((batch, 4)) < shown).cumprod(axis=1).sum(axis=1)
        hazards.learn_outcomes(outcome(now, kept, np.minimum(hits, kept).astype(np.int64)), logits)
    stale = hazards.survival(context(batch, 4, 999)).stale
    assert float(stale[0].mean()) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("matters", [True, False])
def test_how_much_the_features_matter_here_is_learned_online(matters: bool) -> None:
    """Where requests are alike, a model that tells them apart makes too much of chance."""
    random = np.random.default_rng(2)
    telling = LogisticHead(
        features=[Feature(name="temperature", mean=0.5, scale=0.5, low=0.0, high=1.0)],
        intercepts=[0.0] * 4,
        weights=[-1.0],
        slopes=[0.0],
    )
    hazards = fitted(known_model(history=telling, drafts=None))
    temperature = np.repeat([0.0, 1.0], 16)
    skill = np.where(temperature > 0.5, 0.27, 0.73) if matters else np.full(32, 0.5)
    for step in range(150):
        # Requests come and go: nothing is learned of one of them.
        now = context(32, 4, step, temperature=temperature)
        logits = hazards.survival(now).logits
        hits = (random.random((32, 4)) < skill[:, None]).cumprod(axis=1).sum(axis=1)
        hazards.learn_outcomes(outcome(now, np.full(32, 4), hits.astype(np.int64)), logits)
        hazards.forget(now.slots)
    found = hazards.survival(context(32, 4, 999, temperature=temperature)).stale[0]
    apart = found[:16].mean() - found[16:].mean()
    assert apart == pytest.approx(0.46 if matters else 0.0, abs=0.08)
