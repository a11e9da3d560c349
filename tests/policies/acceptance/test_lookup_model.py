"""Hazards of looked-up drafts: learned by length of the match, from what is emitted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.acceptance.lookup_model import LookupModel
from adaptive_spec.policies.acceptance.model import AcceptanceModel

KMAX, BATCH = 4, 32


def taught(steps: int, seed: int = 0) -> LookupModel:
    """A model that saw short matches agree with .2, long ones with .9, requests being alike."""
    model, random = LookupModel(KMAX), np.random.default_rng(seed)
    for step in range(steps):
        slots = np.arange(BATCH) + BATCH * (step % 4)
        match = np.where(random.random(BATCH) < 0.5, 1, 20)
        hits = random.random((BATCH, KMAX)) < np.where(match > 1, 0.9, 0.2)[:, None]
        agreed = hits.cumprod(axis=1).sum(axis=1)
        emitted = random.integers(1, KMAX + 2, BATCH)
        available = np.full(BATCH, KMAX)
        model.learn_copied(slots, available, match, np.minimum(agreed, emitted), emitted)
    return model


def test_long_matches_are_told_from_short_ones_though_little_is_emitted() -> None:
    model = taught(400)
    fresh = np.array([900, 901])
    short, long = model.hazard(fresh, np.array([1, 20]))[0]
    assert short == pytest.approx(0.2, abs=0.08)
    assert long == pytest.approx(0.9, abs=0.08)


def test_what_was_not_emitted_says_nothing() -> None:
    model = LookupModel(KMAX)
    slots, match = np.arange(8), np.full(8, 5)
    before = model.hazard(slots, match)
    one, four = np.ones(8, dtype=np.int64), np.full(8, 4)
    for _ in range(50):
        model.learn_copied(slots, four, match, one, one)  # one token came, and it was right
    after = model.hazard(slots, match)
    assert (after[0] > before[0]).all()
    assert model._hazards.observations[1:].sum() == 0


@given(
    st.lists(
        st.tuples(*(st.integers(0, KMAX),) * 2, st.integers(0, 40), st.integers(1, KMAX + 1)),
        min_size=1,
        max_size=8,
    )
)
def test_hazards_stay_probabilities_whatever_is_counted(
    rows: list[tuple[int, int, int, int]],
) -> None:
    available, agreed, match, emitted = np.array(rows, dtype=np.int64).T
    model, slots = LookupModel(KMAX), np.arange(len(rows))
    for _ in range(20):
        model.learn_copied(slots, available, match, agreed, emitted)
        hazard = model.hazard(slots, match)
        assert ((hazard > 0.0) & (hazard < 1.0)).all()


def test_a_saved_state_goes_on_and_an_older_one_without_look_ups_is_taken() -> None:
    model = AcceptanceModel(KMAX)
    model.lookup = taught(100)
    state = json.loads(json.dumps(model.state()))
    again, fresh, match = AcceptanceModel(KMAX), np.array([900]), np.array([20])
    again.restore(state)
    assert again.lookup.hazard(fresh, match) == pytest.approx(model.lookup.hazard(fresh, match))
    del state["lookup"]
    older = AcceptanceModel(KMAX)
    older.restore(state)
    assert older.lookup.hazard(fresh, match)[0, 0] == pytest.approx(0.5)
