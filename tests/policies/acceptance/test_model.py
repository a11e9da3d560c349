"""The acceptance model finds hazards from censored outcomes, whatever K does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.acceptance.hazard_model import survival_of
from adaptive_spec.policies.acceptance.model import AcceptanceModel


def feed(
    model: AcceptanceModel, hazards: np.ndarray, steps: int, k_rule: str, seed: int = 0
) -> None:
    """Requests [B] with hazards [B, Kmax]; K by a rule that may depend on the request."""
    random = np.random.default_rng(seed)
    batch, kmax = hazards.shape
    slots = np.arange(batch)
    for _ in range(steps):
        if k_rule == "random":
            k = random.integers(0, kmax + 1, batch)
        else:  # what a controller does: good requests verify deeper
            k = np.where(hazards[:, 0] > 0.6, kmax, 1)
        hits = random.random((batch, kmax)) < hazards
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), k)
        model.learn_outcomes(slots, k.astype(np.int64), accepted.astype(np.int64))


def test_hazards_of_alike_requests_are_found_by_position() -> None:
    truth = np.array([0.9, 0.7, 0.5, 0.3])
    model = AcceptanceModel(4)
    feed(model, np.tile(truth, (16, 1)), 2000, "random")
    assert model.hazard(np.arange(16)).mean(axis=1) == pytest.approx(truth, abs=0.04)


def test_requests_are_told_apart_although_k_depends_on_them() -> None:
    hazards = np.repeat(np.array([[0.9], [0.25]]), 8, axis=0) * np.ones((16, 4))
    model = AcceptanceModel(4)
    feed(model, hazards, 1500, "by request")
    first = model.hazard(np.arange(16))[0]
    assert first[:8].mean() > first[8:].mean() + 0.15


def test_survival_never_rises_with_position() -> None:
    model = AcceptanceModel(6)
    feed(model, np.full((8, 6), 0.7), 50, "random")
    survival = survival_of(model.hazard(np.arange(8)))
    assert (np.diff(survival, axis=0) <= 0).all()
    assert survival.max() < 1.0


def test_a_request_that_verified_nothing_teaches_nothing() -> None:
    model = AcceptanceModel(3)
    before = model.hazard(np.arange(4)).copy()
    zero = np.zeros(4, dtype=np.int64)
    model.learn_outcomes(np.arange(4), zero, zero)
    assert (model.hazard(np.arange(4)) == before).all()
    assert model.observations.tolist() == [0, 0, 0]


def test_observations_count_censored_positions_only_when_seen() -> None:
    model = AcceptanceModel(3)
    model.learn_outcomes(np.arange(3), np.array([3, 2, 1]), np.array([0, 2, 1]))
    # Request 0 failed at 1; request 1 saw 1 and 2; request 2 saw 1.
    assert model.observations.tolist() == [3, 1, 0]


def test_a_freed_slot_starts_from_the_prior() -> None:
    model = AcceptanceModel(3)
    feed(model, np.full((4, 3), 0.05), 100, "random")
    low = model.hazard(np.array([2]))[0, 0]
    model.forget(np.array([2]))
    fresh = model.hazard(np.array([2]))[0, 0]
    assert fresh == model.hazard(np.array([999]))[0, 0]
    assert low <= fresh + 1e-9


@pytest.mark.parametrize(("low", "high"), [(0.7, 0.7), (0.15, 0.95)])
def test_it_learns_how_much_requests_differ(low: float, high: float) -> None:
    model = AcceptanceModel(4)
    for seed in range(40):
        hazards = np.where(np.arange(8) % 2 == 0, low, high)[:, None] * np.ones((8, 4))
        feed(model, hazards, 30, "random", seed)
        model.forget(np.arange(8))
    variance = model.history.effects.prior_variance.sum()
    if low == high:
        assert variance < 0.25
    else:
        assert variance > 1.0


def test_state_round_trips_through_json() -> None:
    model = AcceptanceModel(4)
    feed(model, np.full((8, 4), 0.8), 300, "random")
    copy = AcceptanceModel(4)
    copy.restore(json.loads(json.dumps(model.state())))
    slot = np.array([500])
    assert (copy.hazard(slot) == model.hazard(slot)).all()


@pytest.mark.parametrize(
    "damage",
    [
        {"position_effect": [1.0]},
        {"position_effect": [float("nan")] * 4},
        {"position_effect": [0.0, 0.0, 0.0, 60.0]},
        {"prior_variance": "much"},
        {"prior_variance": []},
        {"prior_variance": [0.3, 0.1, -0.1]},
        {"prior_variance": [0.3, 0.1, 0.1, 0.1]},
        {"observations": None},
    ],
)
def test_a_state_that_does_not_fit_is_refused(damage: dict[str, object]) -> None:
    model = AcceptanceModel(4)
    with pytest.raises(PolicyError, match="acceptance state"):
        model.restore({**model.state(), **damage})


def test_after_widening_a_fall_is_learned_in_a_few_steps() -> None:
    steps = {}
    for widened in (False, True):
        model = AcceptanceModel(3)
        feed(model, np.full((16, 3), 0.85), 600, "random")
        if widened:
            model.widen()
        count = 0
        while model.hazard(np.arange(16))[0].mean() > 0.3 and count < 500:
            feed(model, np.full((16, 3), 0.05), 1, "random", seed=count)
            count += 1
        steps[widened] = count
    assert steps[True] < 20
    assert steps[True] < 0.7 * steps[False]


def test_once_doubted_every_position_counts_as_unseen() -> None:
    model = AcceptanceModel(3)
    model.learn_outcomes(np.arange(4), np.full(4, 3), np.full(4, 3))
    assert model.observations.tolist() == [4, 4, 4]
    model.widen()
    assert model.observations.tolist() == [0, 0, 0]
