"""What was recorded is fitted without the bias of censoring, and measured on other requests."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.policies.regression import load_model
from adaptive_spec.sim.fit.calibration import (
    Calibration,
    calibration_by_position,
    calibration_error,
    ranking_quality,
)
from adaptive_spec.sim.fit.fitting import fit_head, fit_sources, fit_steps, predict
from adaptive_spec.sim.fit.sources import Steps, joined
from adaptive_spec.sim.fit.table import average_hazards, observed_drafts

pytest.importorskip("sklearn")

TRUE_HAZARDS = np.array([0.8, 0.6, 0.4, 0.3])


def recorded(
    requests: int = 60,
    steps: int = 40,
    *,
    spread: float = 0.0,
    confident: bool = False,
    seed: int = 0,
    k_follows: bool = False,
) -> Steps:
    """Steps of requests with known hazards; K is drawn, or follows how good the request is."""
    random = np.random.default_rng(seed)
    logit = np.log(TRUE_HAZARDS / (1 - TRUE_HAZARDS))
    effect = spread * random.standard_normal(requests)
    request = np.repeat(np.arange(requests), steps)
    logits = logit + effect[request][:, None]
    shown = np.full((len(request), 4), np.nan)
    if confident:
        signal = 1.5 * random.standard_normal(shown.shape)
        logits = logits + signal
        shown = 1 / (1 + np.exp(-signal))
    hits = random.random(logits.shape) < 1 / (1 + np.exp(-logits))
    k = random.integers(1, 5, len(request))
    if k_follows:
        k = np.where(effect[request] > 0, 4, 1)
    return Steps(
        request=request,
        verified=k,
        accepted=np.minimum(hits.cumprod(axis=1).sum(axis=1), k),
        confidence=shown,
    )


# ----------------------------------------------------------------------- the table


def test_drafts_are_observed_up_to_the_first_rejection_within_k() -> None:
    steps = recorded(1, 4)
    steps = replace(steps, verified=np.array([3, 3, 0, 2]), accepted=np.array([3, 1, 0, 0]))
    drafts = observed_drafts(steps, [0.5])
    assert drafts.position.tolist() == [0, 1, 2, 0, 1, 0]
    assert drafts.accepted.tolist() == [1, 1, 1, 1, 0, 0]


def test_hazards_are_those_of_the_drafter_whatever_k_cut_off() -> None:
    steps = recorded(200)
    assert average_hazards(steps, 4) == pytest.approx(TRUE_HAZARDS, abs=0.03)
    # Counting acceptances per verified draft is what censoring would bias.
    naive = [float((steps.accepted > j)[steps.verified > j].mean()) for j in range(4)]
    assert abs(naive[3] - TRUE_HAZARDS[3]) > 0.1


def test_history_is_what_was_known_before_the_step() -> None:
    steps = recorded(5, 30, spread=1.5)
    drafts = observed_drafts(steps, TRUE_HAZARDS.tolist())
    first = np.concatenate([[True], drafts.request[1:] != drafts.request[:-1]])
    assert not drafts.history[first].any()
    assert drafts.history[~first].any()
    changed = replace(steps, accepted=np.where(np.arange(150) % 30 == 29, 0, steps.accepted))
    again = observed_drafts(changed, TRUE_HAZARDS.tolist())
    for request in range(5):
        one = drafts.history[drafts.request == request]
        other = again.history[again.request == request]
        shared = min(len(one), len(other))
        assert (one[:shared] == other[:shared]).all()


# ---------------------------------------------------------------------- estimators


def test_what_is_exported_predicts_what_scikit_learn_predicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sklearn.linear_model

    kept: list[Any] = []

    class Kept(sklearn.linear_model.LogisticRegression):
        def fit(self, x: Any, y: Any) -> Any:
            kept.extend([self, x])
            return super().fit(x, y)

    monkeypatch.setattr(sklearn.linear_model, "LogisticRegression", Kept)
    steps = recorded(40, 30, spread=1.0, confident=True)
    drafts = observed_drafts(steps, average_hazards(steps, 4))
    for confidence in (False, True):
        head = fit_head(drafts, 4, confidence=confidence)
        theirs = kept[-2].predict_proba(kept[-1])[:, 1]
        assert predict(head, drafts) == pytest.approx(theirs, abs=1e-3), "six digits are kept"


def test_it_finds_requests_that_differ_and_is_calibrated_on_others() -> None:
    model = fit_steps(recorded(150, spread=1.2), held_out=0.4)
    found = msgspec.convert(model.calibration, Calibration)
    assert (found.requests, found.held_out) == (90, 60)
    together, by_average = found.history[0], found.average[0]
    assert together.position == 0
    assert together.auc is not None
    assert by_average.auc is not None
    assert together.auc > by_average.auc + 0.03
    assert together.ece < 0.06


def test_k_that_follows_acceptance_does_not_bias_a_position() -> None:
    """Only good requests verify positions 2 to 4; history tells that they are good."""
    model = fit_steps(recorded(300, spread=1.0, k_follows=True, seed=3), held_out=0.3)
    logit = model.history.intercepts[1]
    raw = float(np.log(model.average[1] / (1 - model.average[1])))
    true = float(np.log(0.6 / 0.4))
    assert abs(logit - true) < abs(raw - true)


def test_draft_confidence_is_fitted_where_it_was_recorded() -> None:
    model = fit_steps(recorded(100, confident=True), held_out=0.3)
    assert model.drafts is not None
    assert model.drafts.confidence == pytest.approx(1.0, abs=0.15)
    found = msgspec.convert(model.calibration, Calibration)
    assert (found.drafts[0].auc or 0) > (found.history_there[0].auc or 1) + 0.1
    assert fit_steps(recorded(60), held_out=0.3).drafts is None


def test_the_same_seed_fits_the_same_model() -> None:
    models = [fit_steps(recorded(40), held_out=0.3, seed=4) for _ in range(2)]
    assert models[0] == models[1]


def test_tables_are_joined_and_their_requests_numbered_on() -> None:
    short = recorded(40, confident=True)
    short = replace(short, confidence=short.confidence[:, :2])
    both = joined([recorded(40), short])
    assert both.requests == 80
    assert both.confidence.shape == (3200, 4)
    assert both.of_requests(np.arange(40, 80)).verified.tolist() == short.verified.tolist()


@pytest.mark.parametrize(
    ("steps", "held_out", "says"),
    [
        (recorded(5), 0.3, "5 requests"),
        (recorded(20, 2), 0.3, "drafts were observed"),
        (recorded(12), 0.01, "held out"),
    ],
)
def test_too_little_to_fit_to_is_said(steps: Steps, held_out: float, says: str) -> None:
    with pytest.raises(DataError, match=says):
        fit_steps(steps, held_out=held_out, source="trace")


# --------------------------------------------------------------------- calibration


def test_calibration_is_zero_for_the_truth_and_finds_what_is_off() -> None:
    random = np.random.default_rng(0)
    predicted = random.uniform(0.02, 0.98, 40_000)
    accepted = (random.random(40_000) < predicted).astype(np.float64)
    assert calibration_error(predicted, accepted) < 0.02
    too_sure = np.clip(predicted + 0.1, 0, 1)
    assert calibration_error(too_sure, accepted) == pytest.approx(0.1, abs=0.02)


def test_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    accepted = np.array([1.0, 0.0, 1.0, 0.0])
    assert ranking_quality(np.array([0.9, 0.1, 0.8, 0.2]), accepted) == 1.0
    assert ranking_quality(np.array([0.5, 0.5, 0.5, 0.5]), accepted) == 0.5
    assert ranking_quality(np.array([0.3, 0.2, 0.1, 0.05]), accepted) == 0.75
    assert ranking_quality(np.array([0.3]), np.array([1.0])) is None


def test_calibration_is_told_for_each_position() -> None:
    rows = calibration_by_position(
        np.array([0.9, 0.8, 0.4]), np.array([1.0, 1.0, 0.0]), np.array([0, 0, 1])
    )
    assert [(row.position, row.drafts, row.accepted) for row in rows] == [
        (0, 3, 0.6667),
        (1, 2, 1.0),
        (2, 1, 0.0),
    ]


# ---------------------------------------------------------------- the shipped model


@pytest.mark.long
def test_the_shipped_model_is_what_our_own_records_give(data: Path) -> None:
    sources = sorted((data / "own").glob("*.npz"))
    shipped = load_model(Path(__file__).parents[3] / "policies" / "regression_model.json")
    fitted = fit_sources(sources, name="default")
    assert shipped.average == pytest.approx(fitted.average, abs=1e-4)
    assert shipped.calibration is not None
    assert fitted.calibration is not None
    for name in ("history", "drafts"):
        ours, again = (each.calibration[name][0] for each in (shipped, fitted))
        for figure in ("drafts", "ece", "auc"):
            assert ours[figure] == pytest.approx(again[figure], abs=2e-3)
