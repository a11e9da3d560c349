"""The verdict on a pass of the drafter is the same in both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.kernels import numba_available
from adaptive_spec.policies.planning.judge_kernel import judge


@pytest.mark.skipif(not numba_available(), reason="numba is not installed")
@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 20), kmax=st.integers(1, 9))
def test_both_forms_return_the_same_bits(seed: int, batch: int, kmax: int) -> None:
    random = np.random.default_rng(seed)
    hazard = random.uniform(0.01, 0.995, batch)
    hazard[random.random(batch) < 0.2] = np.nan
    drafting = random.random(batch) < 0.8
    mean_hazard = random.uniform(0.01, 0.995, (kmax, batch))
    position = int(random.integers(kmax))
    draft_prices = np.sort(random.uniform(0.0, 1.2, kmax))
    pass_price = random.uniform(0.0, 0.3 * batch)
    found = []
    for form in (judge.reference, judge.compile()):
        changed = np.random.default_rng(seed)
        survival = changed.uniform(0.0, 1.5, batch)
        extending = changed.random(batch) < 0.1
        prices = draft_prices, pass_price
        admitted, going = form(
            position, hazard, mean_hazard, *prices, drafting, survival, extending
        )
        assert not (going & ~admitted).any(), "nobody goes on without keeping the draft"
        found.append(b"".join(each.tobytes() for each in (admitted, going, survival, extending)))
    assert found[0] == found[1]
