"""Tokens of requests that accept much count for less, and what the planner makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policies.planning.shared_k import best_admission, token_worth
from adaptive_spec.step import Capability, FloatArray, Level

_KMAX = 4
_FULL = Capability(level=Level.FULL, max_draft_tokens=_KMAX)


def survival_of(hazards: list[float]) -> FloatArray:
    """[Kmax, B] of requests with one hazard each at all positions."""
    return np.cumprod(np.tile(np.array(hazards), (_KMAX, 1)), axis=0)


def times(batch: int, per_draft: float = 0.1) -> tuple[FloatArray, FloatArray]:
    """Verify time, linear in the drafts, and draft time, linear in the depth; [B] cost [B] s."""
    return batch + per_draft * np.arange(batch * _KMAX + 1), 0.02 * np.arange(_KMAX + 1)


def test_alike_requests_count_alike() -> None:
    worth = token_worth(survival_of([0.7] * 5), *times(5), _FULL)
    assert worth == pytest.approx(np.ones(5))


def test_requests_that_accept_more_count_less() -> None:
    worth = token_worth(survival_of([0.1, 0.5, 0.9]), *times(3), _FULL)
    assert worth[0] > worth[1] > worth[2] > 0.0


def test_worth_is_the_seconds_a_token_takes() -> None:
    verify, draft = times(2)
    survival = survival_of([0.0, 1.0])
    worth = token_worth(survival, verify, draft, _FULL)
    never, always = verify[0], (verify[2 * _KMAX] + draft[_KMAX]) / (1 + _KMAX)
    assert worth[0] / worth[1] == pytest.approx(never / always)


def test_tokens_together_count_as_many_as_they_are() -> None:
    survival = survival_of([0.0, 1.0])
    worth = token_worth(survival, *times(2), _FULL)
    assert worth @ [1.0, 1.0 + _KMAX] == pytest.approx(2.0 + _KMAX)


def test_at_close_chances_a_draft_goes_to_who_waits_longer() -> None:
    """Of nearly equal last drafts, the one of the request that accepts less is the better."""
    survival = np.array([[0.95, 0.50], [0.90, 0.10], [0.85, 0.05], [0.51, 0.01]])
    verify, draft = times(2, per_draft=0.35)
    both = np.full(2, _KMAX)
    worth = token_worth(survival, verify, draft, _FULL)
    plain = best_admission(survival, None, both, both, verify, draft, _FULL).verify
    weighted = best_admission(survival * worth, worth, both, both, verify, draft, _FULL).verify
    assert weighted[0] <= plain[0]
    assert weighted[1] >= plain[1]
    assert (weighted != plain).any()
