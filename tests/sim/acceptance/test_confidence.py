from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.policies import hazard_quality as quality
from adaptive_spec.sim.acceptance.confidence import with_confidence
from adaptive_spec.sim.acceptance.hazard import generate, shipped_model
from adaptive_spec.sim.acceptance.per_position import read_per_position
from adaptive_spec.sim.acceptance.recorded import read_recorded_npz

from .conftest import GSM8K
from .fake_records import data_of, shown_at


def histogram(shown, accepted):
    """Counts of drafts [N], as `policies.hazard_quality` reads them."""
    counts = np.zeros((1, quality.BINS, 3))
    quality.tally(shown[None], np.ones(len(shown), int), accepted.astype(int), counts)
    return counts[0]


@pytest.fixture(scope="module")
def good():
    return generate(shipped_model("good"), depth=6, seed=0)


@pytest.mark.parametrize("auc", [0.5, 0.75, 0.85, 0.92])
def test_the_signal_has_the_stated_auc_at_every_position(good, auc):
    shown = with_confidence(good, auc=auc, seed=1)
    for position in range(6):
        assert quality.auc(histogram(*shown_at(shown, position))) == pytest.approx(auc, abs=0.01)


@pytest.mark.parametrize("auc", [0.6, 0.85, 0.95])
def test_the_signal_is_the_probability_of_acceptance(good, auc):
    shown = with_confidence(good, auc=auc, seed=2)
    for position in range(6):
        assert quality.calibration_error(histogram(*shown_at(shown, position))) < 0.012


def test_the_signal_of_published_lists_has_the_stated_auc(data):
    shown = with_confidence(read_per_position(data / GSM8K, "eagle", depth=6), auc=0.85, seed=3)
    for position in range(6):
        assert quality.auc(histogram(*shown_at(shown, position))) == pytest.approx(0.85, abs=0.012)


def test_same_seed_same_signal(good):
    one, two, other = (with_confidence(good, auc=0.8, seed=s).confidence for s in (1, 1, 2))
    assert one.tobytes() == two.tobytes()
    assert one.tobytes() != other.tobytes()


def test_a_token_shows_alike_whichever_step_drafts_it():
    # Every position accepts the next: draft i + 1 here is draft i one position later.
    data = data_of([4] * 200 + [3, 2, 1, 0], depth=4)
    shown = with_confidence(data, auc=0.9, seed=0).confidence
    ranks = [np.argsort(shown[10 - i : 150 - i, i]) for i in range(4)]
    for rank in ranks[1:]:
        assert rank.tolist() == ranks[0].tolist()


def test_past_the_first_rejection_the_signal_is_drawn_from_the_base_hazard(good):
    shown = with_confidence(good, auc=0.9, seed=5)
    beyond = shown.accepted < 2
    base = (good.accepted > 2).sum() / (good.accepted >= 2).sum()
    # Calibrated: the mean of the signal is the share of accepted labels.
    assert shown.confidence[beyond, 2].mean() == pytest.approx(base, abs=0.01)


def test_the_signal_lies_between_nought_and_one_and_is_never_unknown(good):
    shown = with_confidence(good, auc=0.99, seed=0).confidence
    assert np.isfinite(shown).all()
    assert shown.min() >= 0
    assert shown.max() <= 1


def test_the_source_says_that_the_signal_is_synthetic(good):
    assert "synthetic confidence, AUC 0.85" in with_confidence(good, auc=0.85, seed=0).source


@pytest.mark.parametrize("auc", [0.4, 1.0, float("nan")])
def test_an_auc_that_can_not_be_is_refused(good, auc):
    with pytest.raises(DataError, match="AUC"):
        with_confidence(good, auc=auc, seed=0)


def test_recorded_confidence_of_our_own_pair_tells_accepted_drafts(data):
    recorded = read_recorded_npz(data / "own" / "bench_draft_code_t0.8.npz")
    assert quality.auc(histogram(*shown_at(recorded, 0))) > 0.7
