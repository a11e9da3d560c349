"""The update of position and request effects is one step of Newton's method, in both forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.acceptance.hazard_model import PARTS, update_effects
from adaptive_spec.step import FloatArray

_PRIOR_VARIANCE = 2.0
_NEVER = 1e-12
"""A variance of a part that is not looked at."""


def parts(first: float, *more: float) -> FloatArray:
    """[PARTS] of u_i and, or else nothing, of what lasts."""
    return np.array([first, *more, *[_NEVER] * (PARTS - 1 - len(more))])


def of_requests(first: Sequence[float]) -> FloatArray:
    """[slots, PARTS] with u_i, and without what lasts."""
    return np.column_stack((np.array(first), np.zeros((len(first), PARTS - 1))))


@pytest.mark.usefixtures("needs_numba")
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(0, 60), kmax=st.integers(1, 8))
def test_both_forms_learn_the_same(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    hazard = random.uniform(0.01, 0.995, (kmax, batch))
    slots = random.permutation(batch + 5)[:batch]
    verified = random.integers(0, kmax + 1, batch)
    accepted = np.minimum(random.integers(0, kmax + 1, batch), verified)
    found = []
    for form in (update_effects.reference, update_effects.compile()):
        position = np.linspace(-1, 1, kmax), np.linspace(5, 1200, kmax)
        count = np.zeros(kmax, dtype=np.int64)
        rows = (batch + 5) * PARTS
        effect = np.linspace(-1, 1, rows).reshape(-1, PARTS)
        evidence = np.linspace(0, 5, rows).reshape(-1, PARTS)
        given_arrays = hazard, slots, verified, accepted, *position, count, effect, evidence
        variances, discounts = np.array([0.3, 0.1, 2.0]), np.array([0.75, 0.98, 0.9])
        *sums, slopes, by_request = form(*given_arrays, variances, discounts)
        results = *position, count, effect, evidence, slopes, by_request
        found.append(np.concatenate([sums, *(each.ravel() for each in results)]))
    assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-12)


@pytest.mark.usefixtures("each_form")
def test_only_drafts_up_to_the_first_rejected_one_count() -> None:
    position, trust, count = np.zeros(3), np.ones(3), np.zeros(3, dtype=np.int64)
    effect, evidence = np.zeros((5, PARTS)), np.zeros((5, PARTS))
    slots, verified, accepted = np.array([4, 0, 2]), np.array([3, 2, 0]), np.array([1, 2, 0])
    surprise, variance, observed, slopes, by_request = update_effects(
        np.full((3, 3), 0.5), slots, verified, accepted, position, trust, count, effect, evidence,
        parts(1.0), np.ones(PARTS),
    )  # fmt: skip
    assert count.tolist() == [2, 2, 0]
    assert (surprise, variance, observed) == (1.0, 1.0, 4)
    assert not slopes.any(), "no effects yet, so their variance changes nothing"
    assert trust.tolist() == [1.5, 1.5, 1.0]
    assert position.tolist() == pytest.approx([1.0 / 1.75, 0.0, 0.0])
    assert effect[:, 0].tolist() == pytest.approx([1.0 / 1.5, 0.0, 0.0, 0.0, 0.0])
    assert evidence.tolist() == [[0.5, 0.25, 0.25], *[[0.0] * PARTS] * 3, [0.5, 0.25, 0.25]]
    assert by_request.tolist() == [[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]


@pytest.mark.usefixtures("each_form")
@pytest.mark.parametrize("accepted", [0, 2, 3])
@pytest.mark.parametrize("score", [-1.5, 0.4])
def test_the_slope_is_that_of_the_outcomes_likelihood_in_the_variance(
    score: float, accepted: int
) -> None:
    information, width = 1.2, 1e-5

    def effect_at(log_variance: float) -> float:
        variance = float(np.exp(log_variance))
        return variance * score / (1.0 + variance * information)

    def log_likelihood(log_variance: float) -> float:
        hazard = 1.0 / (1.0 + np.exp(-effect_at(log_variance)))
        failed = np.log(1.0 - hazard) if accepted < 3 else 0.0
        return float(accepted * np.log(hazard) + failed)

    at = float(np.log(_PRIOR_VARIANCE))
    hazard = np.full((3, 1), 1.0 / (1.0 + np.exp(-effect_at(at))))
    _, _, _, ((slope, *_), (curvature, *_)), _ = update_effects(
        hazard, np.zeros(1, dtype=np.int64), np.array([3]), np.array([accepted]), np.zeros(3),
        np.ones(3), np.zeros(3, dtype=np.int64), of_requests([effect_at(at)]),
        of_requests([information]), parts(_PRIOR_VARIANCE), parts(0.75),
    )  # fmt: skip
    expected = (log_likelihood(at + width) - log_likelihood(at - width)) / (2.0 * width)
    assert slope == pytest.approx(expected, rel=1e-4)
    assert curvature > 0.0


@pytest.mark.parametrize("first", [0.01, 0.3, 0.99])
@pytest.mark.usefixtures("each_form")
def test_a_large_batch_moves_a_hazard_to_its_rate_and_not_past_it(
    first: float,
) -> None:
    position, trust, count = np.array([np.log(first / (1 - first))]), np.full(1, 2.0), np.zeros(1)
    verified, accepted = np.ones(256, dtype=np.int64), np.arange(256) % 3 % 2
    rate, slots = float(accepted.mean()), np.arange(256)
    for _ in range(6):
        hazard = 1.0 / (1.0 + np.exp(-position))
        update_effects(
            np.repeat(hazard[:, None], 256, axis=1), slots, verified, accepted, position, trust,
            count.astype(np.int64), of_requests([0.0] * 256), of_requests([0.0] * 256),
            parts(_NEVER), parts(0.75),
        )  # fmt: skip
        after = float(1.0 / (1.0 + np.exp(-position[0])))
        assert (after - rate) * (first - rate) > -0.05, "past the rate"
    assert after == pytest.approx(rate, abs=0.05)


@pytest.mark.usefixtures("each_form")
def test_requests_that_are_known_tell_little_of_the_others() -> None:
    position, trust, count = np.zeros(1), np.ones(1), np.zeros(1, dtype=np.int64)
    unknown, known, one = 0.0, 1.5, np.array([1, 1])
    *_, by_request = update_effects(
        np.full((1, 2), 0.5), np.array([0, 1]), one, one, position, trust, count,
        of_requests([0.0, 0.0]), of_requests([unknown, known]), parts(_PRIOR_VARIANCE), parts(0.75),
    )  # fmt: skip
    # With a prior variance of 2 the share of it that is left is 1 / (1 + 2 * 1.5).
    assert by_request.tolist() == [[0.5, 0.5 / 4], [0.25, 0.25 / 4]]
    assert trust.tolist() == pytest.approx([1.25 + 0.25 / 4])
    surplus = 0.5 + 0.5 / 4
    assert position.tolist() == pytest.approx([surplus / (1.25 + 0.25 / 4 + 0.25 * surplus)])


@pytest.mark.usefixtures("each_form")
def test_the_first_draft_and_the_deeper_ones_are_told_apart_for_long() -> None:
    """Of a request whose first drafts are right and whose second ones are wrong."""
    effect, evidence = np.zeros((1, PARTS)), np.zeros((1, PARTS))
    slots, verified, accepted = np.array([0]), np.array([2]), np.array([1])
    for _ in range(60):
        own = effect[0]
        logit = np.array([[own[0] + own[1]], [own[0] + own[2]]])
        update_effects(
            1.0 / (1.0 + np.exp(-logit)), slots, verified, accepted, np.zeros(2), np.ones(2),
            np.zeros(2, dtype=np.int64), effect, evidence, parts(0.3, 1.0, 1.0),
            np.array([0.75, 0.98, 0.98]),
        )  # fmt: skip
    assert effect[0, 1] > 1.0
    assert effect[0, 2] < -1.0
    assert abs(effect[0, 0]) < 0.2


@pytest.mark.usefixtures("each_form")
def test_parts_share_what_an_observation_tells() -> None:
    """Together they move by no more than one part of the sum of their variances would."""
    moved = []
    for variances in (parts(1.5), parts(1.0, 0.5, 0.5)):
        effect, evidence = np.zeros((1, PARTS)), np.zeros((1, PARTS))
        update_effects(
            np.full((1, 1), 0.5), np.array([0]), np.array([1]), np.array([1]), np.zeros(1),
            np.ones(1), np.zeros(1, dtype=np.int64), effect, evidence, variances, np.ones(PARTS),
        )  # fmt: skip
        moved.append(effect.sum())
    assert moved[1] == pytest.approx(moved[0], rel=1e-9)
