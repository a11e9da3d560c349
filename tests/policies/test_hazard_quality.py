"""AUC and calibration error out of histograms are those of the observed drafts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptive_spec import build_policy
from adaptive_spec.errors import PolicyError
from adaptive_spec.operation.status import figures_of
from adaptive_spec.policies.hazard_quality import HazardQuality
from adaptive_spec.testing import finished_step
from tests import steps as made

BATCH, KMAX = 32, 3


def steps(count: int, seed: int = 0) -> list[tuple[Any, Any, Any, Any]]:
    """(true hazards [Kmax, B], verified, accepted, would have been accepted [Kmax, B])."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        hazard = random.uniform(0.05, 0.95, (KMAX, BATCH))
        hits = random.random((KMAX, BATCH)) < hazard
        verified = random.integers(0, KMAX + 1, BATCH)
        accepted = np.minimum(hits.cumprod(axis=0).sum(axis=0), verified)
        found.append((hazard, verified, accepted, hits))
    return found


def exact_auc(predicted: Any, hit: Any) -> float:
    yes, no = predicted[hit], predicted[~hit]
    above = (yes[:, None] > no).mean() + 0.5 * (yes[:, None] == no).mean()
    return float(above)


def test_auc_is_that_of_all_pairs_of_observed_drafts() -> None:
    quality = HazardQuality(KMAX)
    predicted, hit, position = [], [], []
    for hazard, verified, accepted, _ in steps(60):
        quality.see("history", hazard, verified, accepted)
        at = np.arange(KMAX)[:, None]
        seen = at < np.minimum(accepted + 1, verified)
        predicted.append(hazard[seen])
        hit.append((at < accepted)[seen])
        position.append(np.broadcast_to(at, seen.shape)[seen])
    p, y, at = np.concatenate(predicted), np.concatenate(hit), np.concatenate(position)
    found = quality.snapshot()["history"]
    assert found["observations"] == pytest.approx(len(p), rel=0.02)
    assert found["auc"] == pytest.approx(exact_auc(p, y), abs=0.005)
    for j in range(KMAX):
        expected = exact_auc(p[at == j], y[at == j])
        assert found["auc_by_position"][j] == pytest.approx(expected, abs=0.01)


def test_the_calibration_error_is_what_predictions_are_off_by() -> None:
    quality = HazardQuality(KMAX)
    for hazard, verified, accepted, _ in steps(800):
        quality.see("history", hazard, verified, accepted)
        quality.see("confidence", np.clip(hazard - 0.2, 0.0, 1.0), verified, accepted)
    found = quality.snapshot()
    assert found["history"]["ece"] < 0.02
    # Less than .2 where predictions were held at 0.
    assert found["confidence"]["ece"] == pytest.approx(0.19, abs=0.02)
    assert found["confidence"]["auc"] == pytest.approx(found["history"]["auc"], abs=0.01)


def test_drafts_that_were_not_verified_are_not_counted() -> None:
    quality = HazardQuality(2)
    one = np.ones(1, dtype=np.int64)
    for _ in range(100):
        quality.see("history", np.array([[0.7], [0.1]]), one, one)
    found = quality.snapshot()["history"]
    assert found["observations"] == pytest.approx(100, rel=0.05)
    assert found["ece_by_position"][0] == pytest.approx(0.3)
    assert found["ece_by_position"][1] is None
    assert found["auc"] is None, "nothing was rejected"


def test_the_past_is_forgotten() -> None:
    quality = HazardQuality(KMAX)
    for hazard, verified, accepted, _ in steps(500):
        quality.see("history", 1.0 - hazard, verified, accepted)
    wrong = quality.snapshot()["history"]["auc"]
    for hazard, verified, accepted, _ in steps(6000, seed=1):
        quality.see("history", hazard, verified, accepted)
    assert wrong < 0.3
    assert quality.snapshot()["history"]["auc"] > 0.75
    assert quality.snapshot()["history"]["observations"] < 6500 * BATCH / 2


def test_a_status_shows_the_quality_of_policies_that_tell_it() -> None:
    class Broken:
        def hazard_quality(self) -> dict[str, Any]:
            raise RuntimeError("no")

    policy: Any = build_policy("goodput", {}, seed=0)
    assert figures_of(policy, "hazard_quality") == {}
    context = made.context(2, made.full(2))
    outcome = made.outcome(context, [2, 2], [1, 2])
    policy.observe(finished_step(context, policy.plan(context), outcome))
    assert figures_of(policy, "hazard_quality")["history"]["observations"] == 4.0
    assert figures_of(build_policy("static"), "hazard_quality") == {}
    with pytest.raises(PolicyError, match="RuntimeError: no"):
        figures_of(Broken(), "hazard_quality")
