"""How sure the drafter was of a request tells of its next drafts, as far as it has been seen to."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adaptive_spec.acceptance.earlier_confidence import EarlierConfidence, round_means
from adaptive_spec.acceptance.model import AcceptanceModel
from adaptive_spec.errors import PolicyError

BATCH, KMAX = 32, 4
SLOTS = np.arange(BATCH)
SURE = np.arange(BATCH) < BATCH // 2
ONE = slice(0, 1)
NOTHING = np.zeros((KMAX, BATCH))


def show(earlier: EarlierConfidence, signal: np.ndarray, task: np.ndarray | None = None) -> None:
    """A round that shows this and teaches nothing about acceptance."""
    earlier.learn(SLOTS, task, ONE, signal, NOTHING, NOTHING)


def feed(
    model: AcceptanceModel,
    rounds: int,
    *,
    tells: bool = True,
    task: np.ndarray | None = None,
    seed: int = 0,
) -> None:
    """Half of the requests keep the drafter sure, half don't; with `tells` it is right to be."""
    random = np.random.default_rng(seed)
    centre = np.where(SURE, 2.0, -2.0)[:, None]
    for _ in range(rounds):
        shown = 1.0 / (1.0 + np.exp(-(centre + random.standard_normal((BATCH, KMAX)))))
        hits = random.random((BATCH, KMAX)) < (shown if tells else 0.5)
        accepted = hits.cumprod(axis=1).sum(axis=1)
        signal = model.signal(SLOTS, shown)
        model.see(SLOTS, signal)
        model.learn(SLOTS, np.full(BATCH, KMAX), accepted, task, signal)


def apart(model: AcceptanceModel, task: np.ndarray | None = None) -> float:
    """By how much the hazard of the sure is above that of the others, before any drafts."""
    hazard = model.hazard(SLOTS, task)[0]
    return float(hazard[SURE].mean() - hazard[~SURE].mean())


def test_one_round_tells_new_requests_apart() -> None:
    model = AcceptanceModel(KMAX)
    for generation in range(30):
        feed(model, 6, seed=generation)
        model.forget(SLOTS)
    assert apart(model) == 0.0
    blind = AcceptanceModel(KMAX)
    blind.restore({**model.state(), "drafts": None})
    feed(model, 1, seed=100)
    feed(blind, 1, seed=100)
    assert apart(model) > apart(blind) + 0.1


def test_where_it_tells_nothing_of_acceptance_nothing_is_expected() -> None:
    model = AcceptanceModel(KMAX)
    for generation in range(30):
        feed(model, 6, tells=False, seed=generation)
        model.forget(SLOTS)
    feed(model, 1, tells=False, seed=100)
    assert abs(apart(model)) < 0.08


def test_a_new_request_starts_from_its_labels_mean() -> None:
    model = AcceptanceModel(KMAX)
    task = np.where(SURE, 1, 0)
    for generation in range(30):
        feed(model, 6, task=task, seed=generation)
        model.forget(SLOTS)
    mean = model.earlier.mean(SLOTS, task)
    assert mean[SURE].min() > 0.5
    assert mean[~SURE].max() < -0.5
    assert (model.earlier.mean(SLOTS) == 0.0).all()
    assert (model.earlier.mean(SLOTS, np.full(BATCH, 900)) == 0.0).all()
    assert (model.earlier.mean(SLOTS, np.full(BATCH, -1)) == 0.0).all()


def test_later_rounds_count_more_and_unknown_drafts_for_nothing() -> None:
    earlier = EarlierConfidence()
    signal = np.full((KMAX, BATCH), np.nan)
    signal[0] = 1.0
    for _ in range(30):
        show(earlier, signal)
    assert earlier.mean(SLOTS) == pytest.approx(np.full(BATCH, 1.0), abs=0.1)
    for _ in range(10):
        show(earlier, -signal)
    assert (earlier.mean(SLOTS) < 0.0).all()
    before = earlier.mean(SLOTS)
    show(earlier, np.full((KMAX, BATCH), np.nan))
    assert (earlier.mean(SLOTS) == before).all()


def test_an_ended_request_leaves_nothing_to_the_next_in_its_slot() -> None:
    earlier = EarlierConfidence()
    show(earlier, np.ones((KMAX, BATCH)))
    earlier.forget(np.append(SLOTS, 5000))
    assert (earlier.mean(SLOTS) == 0.0).all()


def test_labels_without_end_do_not_grow_it() -> None:
    earlier = EarlierConfidence()
    for first in range(0, 100_000, 1000):
        show(earlier, np.ones((KMAX, BATCH)), np.arange(first, first + BATCH))
    assert len(earlier._task_sum) <= 1024


def test_the_state_round_trips() -> None:
    model = AcceptanceModel(KMAX)
    for generation in range(10):
        feed(model, 6, seed=generation)
        model.forget(SLOTS)
    again = EarlierConfidence()
    again.restore(json.loads(json.dumps(model.earlier.state())))
    assert (again.weight == model.earlier.weight).all()
    assert again.weight.max() > 0.0


@pytest.mark.parametrize(
    "state",
    [{}, {"weight": [0.0]}, {"weight": [-1.0, 0.0], "evidence": [1.0, 1.0]}, None, {"weight": "x"}],
)
def test_a_state_that_does_not_fit_is_refused(state: object) -> None:
    with pytest.raises(PolicyError, match="earlier confidence"):
        EarlierConfidence().restore(state)


@pytest.mark.usefixtures("each_form")
def test_the_mean_of_a_round_is_that_of_the_drafts_that_showed_something() -> None:
    signal = np.array([[1.0, np.nan, 4.0], [3.0, np.nan, np.nan]])
    assert round_means(signal).tolist() == pytest.approx([2.0, np.nan, 4.0], nan_ok=True)


@pytest.mark.usefixtures("needs_numba")
def test_both_forms_return_the_same_means_to_the_last_bit() -> None:
    random = np.random.default_rng(0)
    for kmax in range(1, 9):
        signal = random.normal(size=(kmax, 30))
        signal[random.random(signal.shape) < 0.4] = np.nan
        found = [form(signal).tobytes() for form in (round_means.reference, round_means.compile())]
        assert found[0] == found[1]
