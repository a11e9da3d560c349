"""Both forms of acceptance's kernels return the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.acceptance.confidence import learn_weight, see, signal_of
from adaptive_spec.policies.acceptance.hazard_model import PARTS, hazards, impute, survival_of
from adaptive_spec.policies.acceptance.hazard_quality import BINS, tally
from adaptive_spec.policies.acceptance.model import passed_over
from tests.policies.two_forms import agree

pytestmark = pytest.mark.usefixtures("needs_numba")
_SLOTS = 70


@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(0, 60), kmax=st.integers(1, 8))
def test_both_forms_agree(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    table, nobody = (kmax, batch), np.zeros(0)
    hazard, of_history = random.uniform(0.01, 0.995, (2, *table))
    signal = np.where(random.random(table) < 0.3, np.nan, random.normal(0, 2, table))
    unknown = np.zeros((0, 0))
    slots = random.permutation(_SLOTS)[:batch]
    verified = random.integers(0, kmax + 1, batch)
    accepted = np.minimum(random.integers(0, kmax + 1, batch), verified)
    positions = random.normal(0, 2, kmax), random.uniform(0, 1500, kmax)
    requests = random.normal(0, 1, (_SLOTS, PARTS)), random.uniform(0, 5, (_SLOTS, PARTS))
    labels = random.normal(0, 1, batch)
    confidence = np.where(random.random((batch, kmax)) < 0.3, np.nan, random.random((batch, kmax)))
    for arguments in (
        (positions[0], requests[0], slots, nobody, unknown, unknown),
        (positions[0], requests[0], slots, labels, np.nan_to_num(signal), unknown),
        (positions[0], requests[0], slots, labels, signal, of_history),
    ):
        agree(hazards, *arguments)
    agree(survival_of, hazard)
    agree(impute, hazard - 0.5, of_history, slots, *positions, *requests, np.array([0.3, 0.1, 0.7]))
    agree(signal_of, confidence, positions[0])
    agree(see, signal, *positions)
    agree(learn_weight, signal, hazard, verified, accepted, np.abs(positions[0]), positions[1])
    agree(passed_over, signal, verified, accepted, hazard, of_history)
    agree(tally, np.round(hazard, 1), verified, accepted, np.ones((kmax, BINS, 3)))
