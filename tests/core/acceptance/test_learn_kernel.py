"""The update of position and request effects is one step of Newton's method, in both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.acceptance.learn_kernel import learn


@pytest.mark.usefixtures("needs_numba")
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(0, 60), kmax=st.integers(1, 8))
def test_both_forms_return_the_same_bits(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    hazard = random.uniform(0.01, 0.995, (kmax, batch))
    verified = random.integers(0, kmax + 1, batch)
    accepted = np.minimum(random.integers(0, kmax + 1, batch), verified)
    found = []
    for form in (learn.reference, learn.compile()):
        gradient, information = np.empty(kmax), np.empty(kmax)
        base = np.empty((2, kmax))
        count = np.zeros(kmax, dtype=np.int64)
        effect, evidence = np.linspace(-1, 1, batch), np.linspace(0, 5, batch)
        sums = gradient, information, count, *base
        form(hazard, verified, accepted, *sums, effect, evidence, 0.3, 0.98)
        results = gradient, information, count, base, effect, evidence
        found.append(b"".join(each.tobytes() for each in results))
    assert found[0] == found[1]


@pytest.mark.usefixtures("each_form")
def test_only_drafts_up_to_the_first_rejected_one_count() -> None:
    gradient, information, count = np.empty(3), np.empty(3), np.zeros(3, dtype=np.int64)
    base = np.empty((2, 3))
    effect, evidence = np.zeros(3), np.zeros(3)
    learn(
        np.full((3, 3), 0.5),
        np.array([3, 2, 0]),
        np.array([1, 2, 0]),
        gradient,
        information,
        count,
        *base,
        effect,
        evidence,
        1.0,
        1.0,
    )
    assert count.tolist() == [2, 2, 0]
    assert gradient.tolist() == [1.0, 0.0, 0.0]
    assert information.tolist() == [0.5, 0.5, 0.0]
    assert base.tolist() == [gradient.tolist(), information.tolist()]
    assert effect.tolist() == pytest.approx([0.0, 1.0 / 1.5, 0.0])
    assert evidence.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.usefixtures("each_form")
def test_requests_that_are_known_tell_little_of_the_others() -> None:
    sums, count = np.empty((4, 1)), np.zeros(1, dtype=np.int64)
    unknown, known = 0.0, 1.5
    learn(
        np.full((1, 2), 0.5),
        np.array([1, 1]),
        np.array([1, 1]),
        sums[0],
        sums[1],
        count,
        sums[2],
        sums[3],
        np.zeros(2),
        np.array([unknown, known]),
        2.0,
        0.75,
    )
    # With a prior variance of 2 the share of it that is left is 1 / (1 + 2 * 1.5).
    assert sums[:, 0].tolist() == pytest.approx([1.0, 0.5, 0.5 + 0.5 / 4, 0.25 + 0.25 / 4])
